// What travels with a bucket besides gradients, as a few elements of the gradients' own dtype in the same message:
// this rank's samples, whether it has run out, whether it saw a value that is not finite, whether its order differs, and
// for each parameter begun in the bucket whether this rank used it.
//
// Every element is a small whole number, so that sums over all ranks are exact in any dtype (bf16 has 8 bits), and means are
// exact again once multiplied by the number of ranks: with p bits, |mean * ranks - sum| <= sum * 2^-p, below one half where
// no sum exceeds 2^(p-1) - 1. Up to that many ranks form a group; each group has elements of its own, in which other ranks
// write 0. A group's elements are four flags, the digits of the samples (least first, of a base such that the whole
// group's sum stays in bounds), then one for each begun parameter.
// f32: 1 group and 2 to 4 digits up to 5000 ranks, so one cache line holds 10 parameters' bits up to 4 ranks. bf16: 7 digits
// for 2 ranks; a group is 127 ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "gradsync/types.hpp"

namespace gradsync {

struct HeaderShape {
  DType dtype = DType::f32;
  std::uint32_t world = 1;
  std::uint32_t parameters = 0;  // begun in the bucket

  std::uint32_t groups() const;
  std::uint32_t group_elements() const;
  std::uint32_t elements() const;  // of all groups, padded to a multiple of 64 bytes
};

struct HeaderMine {
  std::uint64_t samples = 0;  // below 2^40
  bool run_out = false, not_finite = false, order_differs = false, failed = false;
  std::vector<bool> used;  // by position in the bucket
};

struct HeaderSums {
  std::uint64_t samples = 0;
  std::uint32_t ranks_run_out = 0, ranks_not_finite = 0, ranks_order_differs = 0, ranks_failed = 0;
  std::vector<std::uint32_t> used;  // ranks, by position
};

// Writes elements() elements.
void write_header(const HeaderShape& shape, std::uint32_t rank, const HeaderMine& mine, void* into);
// Of what an all-reduce left there; `averaged`: by ReduceOp::avg, else sum.
HeaderSums read_header(const HeaderShape& shape, const void* from, bool averaged);

}  // namespace gradsync
