#include "world.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "algorithms/catalogue.hpp"
#include "comm/store_server.hpp"

namespace gradsync::cases {
namespace {

TransportKind kind_of(Medium medium) {
  switch (medium) {
    case Medium::loopback: return TransportKind::loopback;
    case Medium::shm: return TransportKind::shm;
    case Medium::tcp: return TransportKind::tcp;
    case Medium::mixed: break;
  }
  return TransportKind::automatic;
}

}  // namespace

std::string_view name_of(Medium medium) {
  return medium == Medium::mixed ? "mixed" : gradsync::name_of(kind_of(medium));
}

std::string describe(const World& world) { return fmt::format("{} ranks over {}", world.size, name_of(world.medium)); }

std::vector<Communicator> open(const World& world) {
  Options options;
  options.timeout = world.timeout;
  if (world.medium == Medium::loopback) return Communicator::threads(world.size, options);
  auto server = StoreServer::start(*parse_address("127.0.0.1"), "cases");
  throw_if_failed(server.status());
  options.rendezvous = fmt::format("tcp://{}/cases", text((*server)->address()));
  options.size = world.size;
  options.start_timeout = world.start_timeout;
  options.transport = kind_of(world.medium);
  options.lanes = world.lanes;
  std::vector<Communicator> ranks(world.size);
  std::vector<Status> problems(world.size);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < world.size; ++rank)
    threads.emplace_back([&, rank, mine = options]() mutable {
      mine.rank = rank;
      if (!world.hosts.empty()) mine.host = world.hosts[rank];
      else if (world.medium == Medium::mixed) mine.host = rank < (world.size + 1) / 2 ? "left" : "right";
      try {
        ranks[rank] = Communicator::create(mine);
      } catch (const Error& error) { problems[rank] = error.status(); }
    });
  for (std::thread& thread : threads) thread.join();
  for (const Status& problem : problems) throw_if_failed(problem);
  return ranks;
}

void on_ranks(std::vector<Communicator>& ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::string> problems(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(ranks[rank]);
      } catch (const std::exception& error) { problems[rank] = error.what(); }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    EXPECT_EQ(problems[rank], "") << "rank " << rank << " of " << ranks.size();
}

void in_world(const World& world, const std::function<void(Communicator&)>& body) {
  SCOPED_TRACE(describe(world));
  try {
    std::vector<Communicator> ranks = open(world);
    on_ranks(ranks, body);
  } catch (const Error& error) { ADD_FAILURE() << describe(world) << ": " << error.what(); }
}

std::vector<Algorithm> algorithms_of(Collective collective) {
  std::vector<Algorithm> found = {Algorithm::automatic};
  for (const CatalogueEntry& entry : catalogue())
    if (entry.collective == collective) found.push_back(entry.algorithm);
  return found;
}

}  // namespace gradsync::cases
