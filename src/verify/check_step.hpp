// What can be said of a step on its own: whether its ranges lie in the rank's spaces, and so on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "schedule/shape.hpp"
#include "schedule/step.hpp"

namespace gradsync {

std::string_view name_of_space(Space space);
// "recv_reduce of 4 chunks from rank 1 into output 3".
std::string describe(const Step& step);

// Fails if the step writes input, leaves a space, talks to itself or to no rank, or copies over its own source. With
// `same_message_chunks` a local step's two ranges must be the same chunks of the message, chunk by chunk.
Status check_step(const Step& step, const Shape& shape, std::uint32_t rank, std::uint32_t world,
                  bool same_message_chunks);

// Whether `count` chunks from `first_a` and from `first_b` on are the same chunks of the message, one by one.
bool same_chunks(const Shape& a, Space space_a, const Shape& b, Space space_b, std::uint32_t first_a,
                 std::uint32_t first_b, std::uint32_t count);

}  // namespace gradsync
