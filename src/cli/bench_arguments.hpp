// The arguments of `gradsync bench`, checked.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "cli/commands.hpp"
#include "gradsync/types.hpp"

namespace gradsync::cli {

struct BenchPlan {
  Collective collective = Collective::all_reduce;
  std::vector<Algorithm> algorithms;
  TransportKind transport = TransportKind::automatic;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::vector<std::uint64_t> bytes;
  std::uint32_t ranks = 2;
  std::uint32_t iterations = 0;  // 0: chosen by size
  std::uint32_t segments = 0;    // 0: chosen
  std::vector<std::uint32_t> shards;
};

// Errors: invalid_argument; unknown names with the known ones, or a combination that does not exist.
Result<BenchPlan> read_bench(const BenchArguments& arguments);

// Whether the message is reduced, so that the operator matters.
bool has_operator(Collective collective);

}  // namespace gradsync::cli
