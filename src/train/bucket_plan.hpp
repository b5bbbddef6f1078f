// Which gradients share a message, and where each lies: a pure function of what all ranks have agreed on.
//
// All gradients of a dtype lie in one arena, in the order of launching. A bucket is a stretch of an arena and one message:
// a header (header.hpp) where it starts with the beginning of a parameter, then gradients, each 64-byte aligned. A bucket
// that begins inside a parameter (which is larger than a bucket) has no header: the one before speaks for it; it holds
// nothing else. A parameter without elements has a piece of none, and its bit in the header.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradsync/gradient_sync.hpp"

namespace gradsync {

struct PlanQuery {
  std::span<const Parameter> parameters;
  std::span<const std::uint32_t> order;  // of the dense ones: when ready, first to last
  std::span<const double> ready_s;  // by parameter; empty: unknown, taken as evenly spread by bytes over backward_s
  double backward_s = 0;            // 0: unknown, taken as the time that sending all of it needs
  MessageCost cost;
  std::size_t bucket_bytes = 0;  // 0: planned
  std::uint32_t world = 1;
};

struct BucketPiece {  // of one parameter
  std::uint32_t parameter = 0;
  std::uint64_t first = 0, count = 0;  // elements of the parameter
};

struct PlannedBucket {
  DType dtype = DType::f32;
  std::uint64_t begin = 0, count = 0;  // elements of the arena, header and padding included
  std::uint32_t header_elements = 0;   // 0: it begins inside a parameter
  std::vector<BucketPiece> pieces;     // in order of address
  std::vector<std::uint32_t> begun;    // parameters whose first element is here, in order: the header's bits
};

struct PlannedPlace {  // of a parameter's gradient
  DType dtype = DType::f32;
  std::uint64_t begin = 0;  // element of the arena
  std::uint32_t first_bucket = 0, last_bucket = 0;
};

struct BucketPlan {
  std::vector<PlannedBucket> buckets;         // in the order of launching
  std::vector<PlannedPlace> places;           // by parameter; of no meaning for sparse ones
  std::vector<std::uint64_t> arena_elements;  // by DType
};

// Equal queries give equal plans on every machine. With bucket_bytes each dtype's bucket is filled as far as it takes; else
// cuts are searched for (plan_search.cpp): the fewest buckets that complete within 1 % of the earliest time possible.
// A parameter larger than a bucket falls into equal parts; a bucket has room for its header and 64 bytes at least, whatever
// bucket_bytes says. Some milliseconds for a thousand parameters, 25 for 20,000.
BucketPlan plan_buckets(const PlanQuery& query);

// When everything would be complete, in the model of the planner: messages one after another, each when its last gradient
// is there. For tests and for the planner itself.
double completion_s(const PlanQuery& query, const BucketPlan& plan);

}  // namespace gradsync
