// The memory in which the gradients live: one shared block for each dtype, zeroed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "train/bucket_plan.hpp"

namespace gradsync {

class Arena {
 public:
  Arena() = default;
  // Throws out_of_memory.
  Arena(Communicator& comm, const BucketPlan& plan);

  View view(DType dtype, std::uint64_t begin, std::uint64_t count) const;
  View of(const PlannedBucket& bucket) const { return view(bucket.dtype, bucket.begin, bucket.count); }
  View of(const PlannedPlace& place, std::uint64_t count) const { return view(place.dtype, place.begin, count); }
  void replace(DType dtype, Memory memory) { memory_[static_cast<std::size_t>(dtype)] = std::move(memory); }
  void take(DType dtype, Arena& from) { replace(dtype, std::move(from.memory_[static_cast<std::size_t>(dtype)])); }

 private:
  std::array<Memory, kDTypeCount> memory_;
};

// Gradients laid out by `from`, brought to where `to` wants them. There is a second copy only while it is needed: none where
// all gradients are zero, and one dtype at a time otherwise.
void move_gradients(Communicator& comm, std::span<const Parameter> parameters, const BucketPlan& from,
                    const BucketPlan& to, Arena& arena);

}  // namespace gradsync
