// Registered memory for tests of the rows above and beside: all of it is shown to peers.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "transport/pages.hpp"

namespace gradsync::testing {

class Book final : public PageRegistry {
 public:
  std::span<std::byte> allocate(std::size_t bytes) {
    auto pages = Pages::create(++ids_, bytes);
    GRADSYNC_CHECK(pages.ok());
    return keep(std::move(*pages));
  }
  std::span<float> allocate_floats(std::size_t count) {
    return {reinterpret_cast<float*>(allocate(count * sizeof(float)).data()), count};
  }
  std::span<std::byte> keep(std::shared_ptr<const Pages> pages) {
    all_.push_back(std::move(pages));
    return all_.back()->bytes();
  }
  void free_all() { all_.clear(); }
  const Pages& first() const { return *all_.front(); }

  std::shared_ptr<const Pages> find(std::span<const std::byte> bytes) override {
    for (const auto& pages : all_)
      if (pages->whole() && bytes.data() >= pages->bytes().data() &&
          bytes.data() + bytes.size() <= pages->bytes().data() + pages->bytes().size())
        return ++found_, pages;
    return nullptr;
  }
  std::size_t found() const { return found_; }  // how often memory was found here

 private:
  std::uint64_t ids_ = 0;
  std::vector<std::shared_ptr<const Pages>> all_;
  std::size_t found_ = 0;
};

}  // namespace gradsync::testing
