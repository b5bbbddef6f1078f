#include "simulate/traffic.hpp"

#include "base/limits.hpp"

namespace gradsync {

Traffic& Traffic::operator+=(const Traffic& other) {
  messages_sent += other.messages_sent;
  bytes_sent += other.bytes_sent;
  messages_received += other.messages_received;
  bytes_received += other.bytes_received;
  elements_reduced += other.elements_reduced;
  return *this;
}

Traffic traffic_of(const Step& step, const Shape& shape, const Layouts& layouts, std::uint64_t element_bytes) {
  const std::uint64_t elements = elements_of(shape, layouts, step.space, step.range()),
                      bytes = elements * element_bytes;
  const std::uint64_t reduced = step.mode == Mode::combine ? elements : 0;
  if (step.verb == Verb::send) return {1, bytes, 0, 0, 0};
  if (step.verb == Verb::recv) return {0, 0, 1, bytes, reduced};
  return {0, 0, 0, 0, reduced};
}

Traffic traffic_of(const Recipe& recipe, std::uint32_t rank, const Layouts& layouts, std::uint64_t element_bytes) {
  const Shape shape = shape_of(recipe, rank);
  GeneratedSteps steps(recipe, rank, limits::window_steps);
  Traffic traffic;
  std::uint64_t first = 0;
  for (auto window = steps.window(0); !window.empty(); window = steps.window(first)) {
    for (const Step& step : window) traffic += traffic_of(step, shape, layouts, element_bytes);
    first += window.size();
  }
  return traffic;
}

}  // namespace gradsync
