// Programs of sends and receives, run by engines over loopback streams that one thread drives in turn: every run is the same.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "algorithms/catalogue.hpp"
#include "engine/engine.hpp"
#include "schedule/layouts.hpp"
#include "transport/loopback.hpp"

namespace gradsync {

inline constexpr std::uint64_t kEpoch = 77;
inline constexpr int kAny = -1;

// A send or a receive of a program.
struct Ask {
  bool sends = false;
  int peer = 0;  // kAny: a receive of any rank
  std::uint32_t tag = 0;
};

// A call under way, with its memory.
struct Posted {
  Ask call;
  std::vector<std::int32_t> data;
  std::shared_ptr<Completion> completion = std::make_shared<Completion>();
};

class World {
 public:
  World(std::uint32_t size, std::size_t ring_bytes) : size_(size), posted_(size) {
    auto fabric = make_loopback_fabric(size, ring_bytes);
    for (std::uint32_t r = 0; r < size; ++r)
      engines_.push_back(std::make_unique<Engine>(loopback_transport(fabric, r)));
  }
  Engine& engine(std::uint32_t rank) { return *engines_[rank]; }
  void leave(std::uint32_t rank) { engines_[rank].reset(); }
  std::vector<std::unique_ptr<Posted>>& posted(std::uint32_t rank) { return posted_[rank]; }

  // Submits a call of that rank. `data` is what it sends or receives into.
  Posted& submit(std::uint32_t rank, const Ask& call, std::vector<std::int32_t> data, Deadline deadline) {
    posted_[rank].push_back(std::make_unique<Posted>(Posted{call, std::move(data)}));
    Posted& posted = *posted_[rank].back();
    engine(rank).submit(std::make_unique<Operation>(
        request(rank, call, {posted.data.data(), posted.data.size()}, deadline), kEpoch, posted.completion));
    return posted;
  }
  Posted& submit(std::uint32_t rank, const Ask& call, std::vector<std::int32_t> data) {
    return submit(rank, call, std::move(data), Deadline::at(TimePoint::max()));
  }
  Request request(std::uint32_t rank, const Ask& call, std::span<std::int32_t> data, Deadline deadline) {
    Request request;
    const std::uint32_t root = call.peer == kAny ? (rank + 1) % size_ : static_cast<std::uint32_t>(call.peer);
    const Collective collective = call.sends ? Collective::send : Collective::recv;
    const Recipe recipe{collective, Algorithm::direct, size_, root, 1, {}};
    request.sequence = ++sequence_;
    request.channel = Channel::point_to_point;
    request.schedule = std::make_shared<const Schedule>(make_schedule(recipe, rank));
    request.call = {collective, DType::i32, ReduceOp::sum, recipe.algorithm, 0, 1, data.size(), 0, call.tag};
    request.any_source = call.peer == kAny;
    if (call.sends) request.input = data.data();
    else request.output = data.data();
    request.input_layout = request.output_layout = layout_for(recipe, request.schedule->shape, data.size());
    request.deadline = deadline;
    return request;
  }

  // Turns until nothing moves any more.
  void run() {
    for (int still = 0; still < 3;) {
      bool moved = false;
      for (auto& engine : engines_) moved = (engine && engine->progress()) || moved;
      if (!moved)
        for (auto& engine : engines_) moved = (engine && engine->attend(TimePoint{})) || moved;
      still = moved ? 0 : still + 1;
    }
  }

 private:
  std::uint32_t size_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::vector<std::unique_ptr<Posted>>> posted_;
  std::uint64_t sequence_ = 0;
};

inline Ask send_to(int peer, std::uint32_t tag) { return {true, peer, tag}; }
inline Ask recv_from(int peer, std::uint32_t tag) { return {false, peer, tag}; }

// What a receive got: the sender and the number of the message among all that it sent to this rank; -1 of both: nothing.
using Got = std::pair<int, int>;

inline std::vector<std::int32_t> message(std::uint32_t from, int number, std::size_t count) {
  std::vector<std::int32_t> data(count, static_cast<std::int32_t>(from * 100000) + number);
  return data;
}

inline Got got_by(const Posted& posted) {
  if (!posted.completion->done()) return {-1, -1};
  EXPECT_TRUE(posted.completion->status().ok()) << posted.completion->status().message;
  const std::int32_t value = posted.data.front();
  for (const std::int32_t other : posted.data) EXPECT_EQ(other, value);
  EXPECT_EQ(posted.completion->source(), value / 100000);
  return {value / 100000, value % 100000};
}

}  // namespace gradsync
