// Meetings over a store that the program brings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>

#include "comm/dictionary_for_test.hpp"
#include "comm/rendezvous.hpp"
#include "comm/store_key_value.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

// A rank's view of it, under a prefix, which counts and checks its calls.
class Prefixed : public KeyValueStore {
 public:
  Prefixed(std::shared_ptr<Dictionary> under, std::string prefix)
      : under_(std::move(under)),
        prefix_(std::move(prefix)) {}

  void set(const std::string& key, std::string_view value) override { under_->set(checked(key), value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    EXPECT_GT(timeout.count(), 0);
    return under_->get(checked(key), timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return under_->add(checked(key), amount); }
  void remove(const std::string& key) override { under_->remove(checked(key)); }

  std::size_t calls = 0;
  std::thread::id owner;  // the only thread that may call, once set

 private:
  std::string checked(const std::string& key) {
    ++calls;
    EXPECT_TRUE(key.starts_with("gradsync/")) << key;
    EXPECT_EQ(std::this_thread::get_id(), owner);
    return prefix_ + key;
  }
  std::shared_ptr<Dictionary> under_;
  std::string prefix_;
};

constexpr std::size_t kCallsOfARank = 13;

Options options_of(std::int64_t rank, std::int64_t size, std::shared_ptr<KeyValueStore> store) {
  Options options;
  options.rank = rank;
  options.size = size;
  options.store = std::move(store);
  options.start_timeout = 20s;
  options.timeout = 20s;
  return options;
}

struct Joiner {
  std::int64_t rank = 0, size = 1;
  std::chrono::nanoseconds start_timeout = 20s;
};

std::vector<Joiner> everyone(std::int64_t size) {
  std::vector<Joiner> all;
  for (std::int64_t rank = 0; rank < size; ++rank) all.push_back({rank, size});
  return all;
}

// All join at once, a thread each, with a wrapper each; `make` makes it.
template <class Make>
std::vector<Result<Joined>> join_all(const std::vector<Joiner>& joiners, Make&& make) {
  std::vector<std::optional<Result<Joined>>> slots(joiners.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < joiners.size(); ++i)
    threads.emplace_back([&, i] {
      auto store = make(i);
      store->owner = std::this_thread::get_id();
      Options options = options_of(joiners[i].rank, joiners[i].size, store);
      options.start_timeout = joiners[i].start_timeout;
      slots[i].emplace(join(options));
    });
  for (auto& thread : threads) thread.join();
  std::vector<Result<Joined>> results;
  for (auto& slot : slots) results.push_back(std::move(*slot));
  return results;
}

std::vector<Result<Joined>> join_at(const std::shared_ptr<Dictionary>& place, const std::vector<Joiner>& joiners,
                                    const std::string& prefix = "") {
  return join_all(joiners, [&](std::size_t) { return std::make_shared<Prefixed>(place, prefix); });
}

void expect_one_group(const std::vector<Result<Joined>>& joined) {
  for (std::size_t rank = 0; rank < joined.size(); ++rank) {
    ASSERT_TRUE(joined[rank]) << "rank " << rank << ": " << joined[rank].status().message;
    EXPECT_EQ(joined[rank]->membership.rank, rank);
    EXPECT_EQ(joined[rank]->membership.places, joined[0]->membership.places);
    EXPECT_EQ(joined[rank]->membership.job, joined[0]->membership.job);
    EXPECT_EQ(joined[rank]->membership.places[rank].tcp, joined[rank]->endpoint->address());
  }
}

TEST(KeyValueMeeting, EveryWorldUpToEightMeets) {
  for (std::int64_t size = 1; size <= 8; ++size)
    expect_one_group(join_at(std::make_shared<Dictionary>(), everyone(size)));
}

TEST(KeyValueMeeting, LeavesNoMoreThanTheFirstWord) {
  const auto place = std::make_shared<Dictionary>();
  expect_one_group(join_at(place, everyone(5)));
  EXPECT_EQ(place->keys(), std::vector<std::string>{"gradsync/first"});
}

// The values hold any byte: what a rank brings is binary, and here even more so.
TEST(KeyValueMeeting, GathersAnyByte) {
  const auto place = std::make_shared<Dictionary>();
  std::string all_bytes;
  for (int byte = 0; byte < 256; ++byte) all_bytes += static_cast<char>(byte);
  const std::vector<std::string> brought = {std::string(3, '\0'), "", all_bytes};
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      const auto store = std::make_shared<Prefixed>(place, "");
      store->owner = std::this_thread::get_id();
      auto meeting = KeyValueMeeting::open(store, {"", rank, 3, 0}, "1", Deadline::after(20s));
      ASSERT_TRUE(meeting) << meeting.status().message;
      for (int again = 0; again < 3; ++again) {
        const auto blobs = (*meeting)->gather("any", brought[rank], Deadline::after(20s));
        ASSERT_TRUE(blobs) << blobs.status().message;
        EXPECT_EQ(*blobs, brought);
      }
    });
  for (auto& thread : threads) thread.join();
}

TEST(KeyValueMeeting, CommunicatorsWorkAndAskTheStoreForNothingMore) {
  const auto place = std::make_shared<Dictionary>();
  for (const TransportKind kind : {TransportKind::automatic, TransportKind::shm, TransportKind::tcp}) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        const auto store = std::make_shared<Prefixed>(place, fmt::format("{}/", name_of(kind)));
        store->owner = std::this_thread::get_id();
        Options options = options_of(rank, 3, store);
        options.transport = kind;
        Communicator comm = Communicator::create(options);
        options.store.reset();
        EXPECT_EQ(store.use_count(), 1) << "the library keeps the store";
        const std::size_t calls = store->calls;
        EXPECT_LE(calls, kCallsOfARank + 2u * 3u + 2u);  // were it the last of each gather and the last to settle
        std::vector<float> data = {static_cast<float>(rank)};
        comm.all_reduce(view(data), ReduceOp::sum);
        EXPECT_EQ(data[0], 3.0f);
        comm.split(0).barrier();
        EXPECT_EQ(store->calls, calls);
      });
    for (auto& thread : threads) thread.join();
  }
}

// Of each gather the last to come reads what all have brought; the last to settle removes two values.
TEST(KeyValueMeeting, CallsOfARankDoNotGrowWithTheWorld) {
  for (const std::size_t size : {2u, 8u}) {
    const auto place = std::make_shared<Dictionary>();
    std::vector<std::shared_ptr<Prefixed>> stores;
    for (std::size_t i = 0; i < size; ++i) stores.push_back(std::make_shared<Prefixed>(place, ""));
    expect_one_group(join_all(everyone(static_cast<std::int64_t>(size)), [&](std::size_t i) { return stores[i]; }));
    std::size_t sum = 0, ordinary = 0;
    for (const auto& store : stores) {
      sum += store->calls;
      ordinary += store->calls == kCallsOfARank;
    }
    EXPECT_EQ(sum, kCallsOfARank * size + 2 * size + 2);
    EXPECT_GE(ordinary + 3, size);
  }
}

TEST(KeyValueMeeting, OneStoreServesMeetingAfterMeetingUnderItsPrefixes) {
  const auto place = std::make_shared<Dictionary>();
  std::set<std::uint64_t> jobs;
  for (int i = 0; i < 5; ++i) {
    const auto joined = join_at(place, everyone(3), fmt::format("{}/", i));
    expect_one_group(joined);
    jobs.insert(joined[0]->membership.job);
  }
  EXPECT_EQ(jobs.size(), 5u);
}

TEST(KeyValueMeeting, APlaceThatHasSeenAMeetingIsRefused) {
  for (const std::int64_t again : {2, 3, 5}) {  // smaller, as large, larger
    const auto place = std::make_shared<Dictionary>();
    expect_one_group(join_at(place, everyone(3)));
    const auto results = join_at(place, everyone(again));
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      ASSERT_FALSE(results[rank]) << "rank " << rank;
      EXPECT_EQ(results[rank].status().code, ErrorCode::invalid_argument) << results[rank].status().message;
      EXPECT_THAT(results[rank].status().message,
                  HasSubstr(rank < 3 ? fmt::format("rank {} is already taken: by another worker, or by an earlier "
                                                   "meeting at this place of the store",
                                                   rank)
                                     : fmt::format("ranks disagree on the world size: rank {} says 5, rank", rank)));
    }
  }
}

TEST(KeyValueMeeting, OfTwoWorkersOfARankOneIsTurnedAwayAndTheOthersMeet) {
  const auto results = join_at(std::make_shared<Dictionary>(), {{0, 3}, {1, 3}, {1, 3}, {2, 3}});
  ASSERT_TRUE(results[0]) << results[0].status().message;
  ASSERT_TRUE(results[3]) << results[3].status().message;
  ASSERT_NE(results[1].ok(), results[2].ok());
  const Status& refused = results[1].ok() ? results[2].status() : results[1].status();
  EXPECT_EQ(refused.code, ErrorCode::invalid_argument);
  EXPECT_THAT(refused.message, HasSubstr("rank 1 is already taken: by another worker"));
}

TEST(KeyValueMeeting, RanksThatDisagreeOnTheSizeAllHearIt) {
  for (const auto& joiners : {std::vector<Joiner>{{0, 3}, {1, 3}, {2, 4}},
                              {{0, 4}, {1, 3}, {2, 3}},
                              {{0, 2}, {1, 3}},
                              {{0, 2}, {1, 4}, {2, 3}}})
    for (const auto& result : join_at(std::make_shared<Dictionary>(), joiners)) {
      ASSERT_FALSE(result);
      EXPECT_THAT(result.status().message, HasSubstr("ranks disagree on the world size: rank"));
    }
}

TEST(KeyValueMeeting, RanksThatComeForDifferentThingsAllHearWhatEachSaid) {
  // A rank that is free, one that another worker has, and one of a world that would be complete with it.
  for (const Joiner other : {Joiner{1, 3}, {0, 3}, {0, 1}}) {
    auto store = std::make_shared<Dictionary>();
    const auto come = [&](Joiner joiner, std::string what) {
      Options options = options_of(joiner.rank, joiner.size, store);
      options.agreement = std::move(what);
      return join(options);
    };
    Status told;
    std::thread first([&] { told = come({0, 3}, "the group of ranks [0, 1, 2]").status(); });
    static_cast<void>(store->get("gradsync/first", 20s));
    const auto joined = come(other, "the group of ranks [2]");
    first.join();
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.status().code, ErrorCode::mismatch);
    const std::string both =
        fmt::format("rank {} comes for the group of ranks [2], rank 0 for the group of ranks [0, 1, 2]", other.rank);
    EXPECT_THAT(joined.status().message, HasSubstr(both));
    EXPECT_EQ(told.code, ErrorCode::peer_lost) << told.message;
    EXPECT_THAT(told.message, HasSubstr(both));
  }
}

TEST(KeyValueMeeting, VersionsThatDifferAreBothNamed) {
  const auto place = std::make_shared<Dictionary>();
  const auto store = std::make_shared<Prefixed>(place, "");
  store->owner = std::this_thread::get_id();
  auto first = KeyValueMeeting::open(store, {"", 2, 4, 0}, "0.1.0", Deadline::after(20s));
  ASSERT_TRUE(first);
  const auto second = KeyValueMeeting::open(store, {"", 0, 4, 0}, "0.2.0", Deadline::after(20s));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.status().code, ErrorCode::protocol);
  EXPECT_EQ(second.status().peer, 2);
  EXPECT_EQ(second.status().message, "rank 0 has gradsync 0.2.0, rank 2 has gradsync 0.1.0");
  const auto told = (*first)->gather("places", "", Deadline::after(20s));
  ASSERT_FALSE(told);
  EXPECT_EQ(told.status().message, "rank 0 left the rendezvous: rank 0 has gradsync 0.2.0, rank 2 has gradsync 0.1.0");
}

TEST(KeyValueMeeting, NamesTheMissingRank) {
  for (const std::int64_t missing : {0, 2, 3}) {
    std::vector<Joiner> joiners = everyone(4);
    joiners.erase(joiners.begin() + missing);
    for (Joiner& joiner : joiners) joiner.start_timeout = 500ms;
    bool timed_out = false;
    for (const auto& result : join_at(std::make_shared<Dictionary>(), joiners)) {
      ASSERT_FALSE(result);
      timed_out = timed_out || result.status().code == ErrorCode::timeout;
      // The first to give up tells the others, so that theirs may be the loss of a peer.
      EXPECT_THAT(result.status().message,
                  AllOf(HasSubstr("the program's store"),
                        HasSubstr(fmt::format("3 of 4 ranks arrived; missing rank {}", missing))));
    }
    EXPECT_TRUE(timed_out);
  }
}

TEST(KeyValueMeeting, WhoGivesUpTellsThoseWhoWaitAndThoseWhoComeLater) {
  for (const std::uint32_t gathers : {0u, 1u, 2u}) {  // how many go well before
    SCOPED_TRACE(gathers);
    const auto place = std::make_shared<Dictionary>();
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        const auto store = std::make_shared<Prefixed>(place, "");
        store->owner = std::this_thread::get_id();
        auto meeting = KeyValueMeeting::open(store, {"", rank, 3, 0}, "1", Deadline::after(20s));
        ASSERT_TRUE(meeting) << meeting.status().message;
        for (std::uint32_t i = 0; i < gathers; ++i) ASSERT_TRUE((*meeting)->gather("", "x", Deadline::after(20s)));
        if (rank == 1) return (*meeting)->fail("it has had enough");
        const auto told = (*meeting)->gather("", "x", Deadline::after(20s));
        ASSERT_FALSE(told);
        EXPECT_EQ(told.status().code, ErrorCode::peer_lost);
        EXPECT_EQ(told.status().peer, 1);
        EXPECT_EQ(told.status().message, "rank 1 left the rendezvous: it has had enough");
      });
    for (auto& thread : threads) thread.join();
  }
}

// Throws in the call of that number.
class Failing final : public Prefixed {
 public:
  using Prefixed::Prefixed;
  std::size_t at = 0;
  void set(const std::string& key, std::string_view value) override { check(), Prefixed::set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return check(), Prefixed::get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return check(), Prefixed::add(key, amount); }

 private:
  void check() {
    if (++calls_ == at) throw std::runtime_error("connection to 192.0.2.1 reset");
  }
  std::size_t calls_ = 0;
};

TEST(KeyValueMeeting, AnExceptionOfTheStoreIsAnErrorHereAndToldToTheOthers) {
  for (std::size_t at = 1;; ++at) {
    SCOPED_TRACE(at);
    const auto place = std::make_shared<Dictionary>();
    const auto failing = std::make_shared<Failing>(place, "");
    failing->at = at;
    std::vector<Joiner> joiners = everyone(3);
    for (Joiner& joiner : joiners)
      joiner.start_timeout = at <= 2 ? 300ms : 20s;  // before it has entered nobody knows it
    const auto results = join_all(joiners, [&](std::size_t i) {
      return i == 1 ? std::static_pointer_cast<Prefixed>(failing) : std::make_shared<Prefixed>(place, "");
    });
    if (results[1]) {
      EXPECT_GE(at, 8u);
      break;
    }
    EXPECT_EQ(results[1].status().code, ErrorCode::unavailable);
    EXPECT_THAT(results[1].status().message,
                AllOf(HasSubstr("the program's store cannot "), HasSubstr("connection to 192.0.2.1 reset")));
    for (const std::size_t other : {0u, 2u})
      if (!results[other] && at > 2) {
        EXPECT_EQ(results[other].status().code, ErrorCode::peer_lost) << results[other].status().message;
        EXPECT_THAT(results[other].status().message, HasSubstr("connection to 192.0.2.1 reset"));
      }
  }
}

TEST(KeyValueMeeting, ArgumentsThatCannotBeAreRefusedBeforeTheStoreIsAsked) {
  const auto store = std::make_shared<Prefixed>(std::make_shared<Dictionary>(), "");
  const auto message = [&](std::int64_t rank, std::int64_t size, const std::string& rendezvous) {
    Options options = options_of(rank, size, store);
    options.rendezvous = rendezvous;
    try {
      (void)Communicator::create(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(-1, -1, ""), "a store to meet in needs rank and size: rank is -1, size is -1");
  EXPECT_EQ(message(0, -1, ""), "a store to meet in needs rank and size: rank is 0, size is -1");
  EXPECT_EQ(message(-1, 2, ""), "a store to meet in needs rank and size: rank is -1, size is 2");
  EXPECT_EQ(message(0, 2, "file:///x"), "both a store and the rendezvous file:///x say where to meet");
  EXPECT_EQ(message(2, 2, ""), "rank 2 is outside of the world of 2 ranks (0 to 1)");
  EXPECT_EQ(store->calls, 0u);
}

}  // namespace
}  // namespace gradsync
