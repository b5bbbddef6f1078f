// Sparse gradients on their way. Each goes in two parts: in its turn among the buckets, how many rows every rank has, with
// what a bucket's header says; then, once that is known, the rows and their values. The second parts have a communicator
// of their own, on which they follow one another in the order of the first parts: when the counts arrive differs from rank
// to rank, and on the lanes that would mix up the order of operations.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "train/header.hpp"
#include "train/items.hpp"
#include "train/sparse.hpp"

namespace gradsync {

class SparseQueue {
 public:
  struct Place {  // of this rank in the world
    std::uint32_t rank = 0, world = 1;
  };
  // What is pending stays.
  void arrange(std::span<const Parameter> parameters, std::span<const Item> items);

  // Adds to what this rank will send. invalid_argument if rows or sizes do not fit the parameter.
  void add(std::uint32_t parameter, SparseRows rows);
  // Sends what was added, times `factor`; 0 sends nothing. Throws what the communicator refuses.
  void launch(std::uint32_t parameter, Place place, const HeaderMine& mine, double factor, Communicator& lane);
  // Begins second parts whose counts are there. Never blocks.
  void push(Place place, Communicator& rows);
  // Waits for both parts of this one, beginning those before it. Throws what failed.
  void receive(std::uint32_t parameter, Place place, Communicator& rows);
  bool received(std::uint32_t parameter) const;
  HeaderSums sums(std::uint32_t parameter) const;  // after receive
  // The rows of all ranks become one list, times `scale`.
  void merge(std::uint32_t parameter, double scale);
  void end_step();  // the next one begins with the first of the order
  void forget();    // of a step that failed, when all has been received: there are no rows

  const SparseRows& result(std::uint32_t parameter) const { return flights_[at_[parameter]].result; }
  SparseRows& pending(std::uint32_t parameter) { return flights_[at_[parameter]].pending; }
  SparseRows& result(std::uint32_t parameter) { return flights_[at_[parameter]].result; }

 private:
  static constexpr std::size_t kHeadWords = 4;  // rows, used, samples, flags
  struct Sending {
    std::uint32_t parameter = 0;
    DType dtype = DType::f32;
    std::size_t row_elements = 1;
    std::int64_t rows_total = 0;
    SparseRows pending, mine, all, result;
    std::vector<std::int64_t> heads;  // of all ranks
    Work heads_work, rows_work, values_work;
    bool launched = false, rows_launched = false;
  };
  void launch_rows(Sending& flight, Place place, Communicator& rows);

  std::vector<Sending> flights_;   // in the order of launching
  std::vector<std::uint32_t> at_;  // by parameter
  std::size_t next_rows_ = 0;      // whose second part comes next
};

}  // namespace gradsync
