// What the planner of buckets works on: the pieces of parameters in the order in which their gradients become ready.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "train/bucket_plan.hpp"

namespace gradsync {

inline constexpr std::uint64_t plan_alignment_bytes = 64;
// A planned bucket is not larger, so that what is reduced stays near the cache and several lanes have work …
inline constexpr std::uint64_t planned_bucket_bytes_max = std::uint64_t{25} << 20;
// … unless messages are so slow to begin that the parts' latencies would cost more than this share of their bytes.
inline constexpr double planned_latency_share = 1.0 / 64;

// The smallest thing that a bucket takes: a parameter, or a part of one that is larger than a bucket.
struct PlanUnit {
  std::uint32_t parameter = 0;
  DType dtype = DType::f32;
  bool begins = true, ends = true;     // the parameter
  std::uint64_t first = 0, count = 0;  // elements
  std::uint64_t bytes = 0;             // up to the next multiple of the alignment
  double ready_s = 0;                  // this and all before it
};

// Header bytes of a bucket in which `begun` parameters begin.
class HeaderBytes {
 public:
  explicit HeaderBytes(std::uint32_t world);
  std::uint64_t of(DType dtype, std::uint32_t begun) const;

 private:
  struct Affine {
    std::uint64_t fixed = 0, each = 0;
  };
  std::array<Affine, kDTypeCount> by_dtype_{};
};

struct PlanUnits {
  std::vector<PlanUnit> units;
  HeaderBytes headers;
  std::uint64_t bucket_bytes = 0;  // at most, header included; a header and one alignment always fit
  MessageCost cost;                // finite and not negative
};

// A bucket in the making: consecutive units of one dtype. It may begin inside a parameter only if it holds nothing else.
struct PlanRun {
  std::uint32_t units = 0, begun = 0;
  std::uint64_t bytes = 0;  // header included
  bool front_begins = true, back_ends = true;

  bool takes(const PlanUnits& all, const PlanUnit& unit, bool in_front) const;
  void take(const PlanUnits& all, const PlanUnit& unit, bool in_front);
};

// When each parameter's gradient is there, in seconds, by parameter.
std::vector<double> ready_times(const PlanQuery& query);
PlanUnits plan_units(const PlanQuery& query);

}  // namespace gradsync
