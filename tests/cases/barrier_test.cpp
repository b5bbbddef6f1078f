// A barrier holds everyone until the last has come.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "world.hpp"

namespace gradsync::cases {
namespace {

TEST(CaseBarrier, NobodyLeavesBeforeTheLastHasCome) {
  for (Medium medium : {Medium::loopback, Medium::shm, Medium::tcp, Medium::mixed})
    for (std::uint32_t size : {2u, 3u, 5u, 8u}) {
      std::atomic<int> come{0}, early{0};
      in_world({.size = size, .medium = medium}, [&](Communicator& comm) {
        for (int round = 0; round < 3 * comm.size(); ++round) {
          // The late rank gives the others a thousand turns to leave too soon.
          for (int turn = 0; comm.rank() == round % comm.size() && turn < 1000; ++turn) std::this_thread::yield();
          come.fetch_add(1);
          comm.barrier();
          if (come.load() < (round + 1) * comm.size()) early.fetch_add(1);
        }
      });
      EXPECT_EQ(early.load(), 0) << describe({.size = size, .medium = medium});
    }
}

}  // namespace
}  // namespace gradsync::cases
