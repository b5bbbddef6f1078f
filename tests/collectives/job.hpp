// What one worker does: every call of the grid, then floats of all magnitudes, then barriers.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "collectives/call.hpp"
#include "collectives/grid.hpp"
#include "collectives/tables.hpp"
#include "support/digest.hpp"

namespace gradsync::test {

// Prints what is wrong, and for the test that started it: "digest WHAT HEX" of results that all ranks must share,
// "covered N" pairs of a kind and a count, "made N calls".
class Job {
 public:
  explicit Job(Communicator& comm);
  void use_registered_memory() { caller_.use_registered_memory(); }
  void reduce_everything();
  void move_everything();
  void reduce_wide_floats();
  void pass_barriers();
  // Whether nothing was wrong. Prints the sums.
  bool finish();

 private:
  void make_calls(Kind kind, const Sources& sources);
  void make(Call call, const Sources& sources, bool replicated);
  void wide(DType dtype, ReduceOp op);
  void wide_call(Call call, const Pattern& mine, const Bounds& bounds);
  std::string outside(const Call& call, const Pattern& mine, const Bounds& bounds) const;
  void complain(const Call& call, const std::string& wrong);
  void print_digest(const std::string& what);

  Communicator& comm_;
  Caller caller_;
  std::uint32_t rank_, size_;
  std::uint64_t salt_ = 0, calls_ = 0, wrong_ = 0;
  std::set<std::pair<Kind, std::size_t>> covered_;
  Digest digest_;
};

}  // namespace gradsync::test
