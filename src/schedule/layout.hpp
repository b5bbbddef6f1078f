// How many elements each chunk of a message has.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace gradsync {

// A message is `blocks` blocks, each cut into `segments` chunks as evenly as possible (the first ones one element longer).
// An all-reduce is one block; an all-gather has a block a rank, of equal or of given sizes. Units: elements.
class Layout {
 public:
  Layout() = default;
  static Layout even(std::uint64_t elements, std::uint32_t chunks) { return Layout(elements, 1, chunks, nullptr); }
  static Layout equal_blocks(std::uint64_t block_elements, std::uint32_t blocks, std::uint32_t segments = 1) {
    return Layout(block_elements, blocks, segments, nullptr);
  }
  static Layout given_blocks(std::span<const std::uint64_t> block_elements, std::uint32_t segments = 1) {
    auto starts = std::make_shared<std::vector<std::uint64_t>>(1, 0);
    for (std::uint64_t n : block_elements) starts->push_back(starts->back() + n);
    return Layout(0, static_cast<std::uint32_t>(block_elements.size()), segments, std::move(starts));
  }

  // `stretches` stretches, as even as possible, each cut into a block a weight, in proportion, and each block into
  // `segments` chunks. A weight of 0 is a block of 0 elements. Whole numbers only, so that all ranks cut alike. The weights
  // together are above 0 and below 2^32.
  static Layout weighted(std::uint64_t elements, std::span<const std::uint32_t> weights, std::uint32_t stretches = 1,
                         std::uint32_t segments = 1) {
    std::uint64_t all = 0;
    for (std::uint32_t w : weights) all += w;
    const Layout even = Layout::even(elements, stretches);
    auto starts = std::make_shared<std::vector<std::uint64_t>>();
    starts->reserve(stretches * weights.size() + 1);
    for (std::uint32_t s = 0; s < stretches; ++s) {
      const std::uint64_t whole = even.size(s) / all, rest = even.size(s) % all;
      std::uint64_t before = 0;
      for (std::uint32_t w : weights) {
        starts->push_back(even.offset(s) + whole * before + rest * before / all);
        before += w;
      }
    }
    starts->push_back(elements);
    const auto blocks = static_cast<std::uint32_t>(starts->size() - 1);
    return Layout(0, blocks, segments, std::move(starts));
  }

  std::uint32_t chunks() const { return blocks_ * segments_; }
  std::uint64_t elements() const { return block_start(blocks_); }
  // The first element of a chunk; offset(chunks()) is elements().
  std::uint64_t offset(std::uint32_t chunk) const {
    const std::uint32_t block = chunk / segments_, segment = chunk % segments_;
    const std::uint64_t start = block_start(block);
    if (segment == 0) return start;
    const std::uint64_t n = block_start(block + 1) - start, base = n / segments_, extra = n % segments_;
    return start + base * segment + (segment < extra ? segment : extra);
  }
  std::uint64_t size(std::uint32_t chunk) const { return offset(chunk + 1) - offset(chunk); }

 private:
  Layout(std::uint64_t block_elements, std::uint32_t blocks, std::uint32_t segments,
         std::shared_ptr<const std::vector<std::uint64_t>> starts)
      : block_elements_(block_elements),
        blocks_(blocks),
        segments_(segments),
        starts_(std::move(starts)) {}
  std::uint64_t block_start(std::uint32_t block) const { return starts_ ? (*starts_)[block] : block_elements_ * block; }

  std::uint64_t block_elements_ = 0;
  std::uint32_t blocks_ = 1;
  std::uint32_t segments_ = 1;
  std::shared_ptr<const std::vector<std::uint64_t>> starts_;
};

}  // namespace gradsync
