// Worlds of ranks that are threads of one process and talk over each transport.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/dictionary_for_test.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync {

// How the ranks talk. `loopback`: communicators of threads; the others meet as processes do.
class PointToPoint : public testing::TestWithParam<TransportKind> {
 protected:
  std::uint64_t fault_seed = 0;  // not 0: bytes come late and in small pieces, over shm and tcp

  // Runs `body` once a rank, each in its thread; an exception is the test's failure.
  void in_world(std::uint32_t size, const std::function<void(Communicator&)>& body,
                std::chrono::nanoseconds timeout = std::chrono::seconds(20)) {
    Options options;
    options.timeout = options.start_timeout = timeout;
    options.fault_seed = fault_seed;
    std::vector<Communicator> made(size);
    if (GetParam() == TransportKind::loopback) made = Communicator::threads(size, options);
    else options.transport = GetParam(), options.store = std::make_shared<Dictionary>(), options.size = size;
    std::vector<std::thread> threads;
    std::vector<std::string> problems(size);
    for (std::uint32_t rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank, mine = options]() mutable {
        mine.rank = rank;
        try {
          Communicator comm = made[rank] ? std::move(made[rank]) : Communicator::create(mine);
          body(comm);
        } catch (const std::exception& error) { problems[rank] = error.what(); }
      });
    for (std::thread& thread : threads) thread.join();
    for (std::uint32_t rank = 0; rank < size; ++rank)
      EXPECT_EQ(problems[rank], "") << "rank " << rank << " of " << size;
  }
};

#define OVER_EVERY_TRANSPORT(Suite)                                                                          \
  INSTANTIATE_TEST_SUITE_P(Over, Suite,                                                                      \
                           testing::Values(TransportKind::loopback, TransportKind::shm, TransportKind::tcp), \
                           [](const auto& one) { return std::string(name_of(one.param)); })

}  // namespace gradsync
