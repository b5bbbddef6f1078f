// Which message a receive gets, against a plain model of MPI's rules.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.hpp"
#include "engine/pairs_for_test.hpp"

namespace gradsync {
namespace {

// The model: rank 0 posts receives, the others' messages arrive, in whatever order the two mix. ---------------------

using Tags = std::vector<std::uint32_t>;

// Every outcome that MPI permits, by walking all orders of posting the next receive and delivering a sender's next message.
class Permitted {
 public:
  Permitted(const std::vector<Ask>& receives, const std::vector<Tags>& sent) : receives_(receives), sent_(sent) {
    State start;
    start.got.assign(receives.size(), {-1, -1});
    start.delivered.assign(sent.size(), 0);
    walk(start);
  }
  bool contains(const std::vector<Got>& got) const { return outcomes_.contains(got); }

 private:
  struct State {
    std::size_t posted = 0;
    std::vector<std::size_t> delivered;        // of each sender
    std::vector<std::pair<int, int>> waiting;  // arrived and not received: sender and number, in order of arrival
    std::vector<Got> got;
    friend auto operator<=>(const State&, const State&) = default;
  };
  bool fits(const Ask& receive, Got message) const {
    const auto& tags = sent_[static_cast<std::size_t>(message.first)];
    return (receive.peer == kAny || receive.peer == message.first) &&
           receive.tag == tags[static_cast<std::size_t>(message.second)];
  }
  void walk(const State& state) {
    if (!seen_.insert(state).second) return;
    bool more = false;
    if (state.posted < receives_.size()) more = true, post(state);
    for (std::size_t s = 0; s < sent_.size(); ++s)
      if (state.delivered[s] < sent_[s].size()) more = true, deliver(state, s);
    if (!more) outcomes_.insert(state.got);
  }
  // Takes the first message of one of the senders that has one.
  void post(State state) {
    const std::size_t receive = state.posted++;
    std::set<int> senders;
    for (std::size_t i = 0; i < state.waiting.size(); ++i) {
      const Got message = state.waiting[i];
      if (!fits(receives_[receive], message) || !senders.insert(message.first).second) continue;
      State next = state;
      next.got[receive] = message;
      next.waiting.erase(next.waiting.begin() + static_cast<std::ptrdiff_t>(i));
      walk(next);
    }
    if (senders.empty()) walk(state);
  }
  // Goes to the first receive that was posted, got nothing yet, and fits.
  void deliver(State state, std::size_t sender) {
    const Got message(static_cast<int>(sender), static_cast<int>(state.delivered[sender]++));
    for (std::size_t i = 0; i < state.posted; ++i)
      if (state.got[i].first < 0 && fits(receives_[i], message)) {
        state.got[i] = message;
        return walk(state);
      }
    state.waiting.push_back(message);
    walk(state);
  }

  const std::vector<Ask>& receives_;
  const std::vector<Tags>& sent_;
  std::set<State> seen_;
  std::set<std::vector<Got>> outcomes_;
};

enum class Order { sends_first, receives_first, in_turn };

std::vector<Got> outcome_of(const std::vector<Ask>& receives, const std::vector<Tags>& sent, Order order) {
  constexpr std::size_t kCount = 40;  // 160 bytes: no message fits the stream of 128
  World world(static_cast<std::uint32_t>(sent.size()), 128);
  const auto submit_sends = [&](std::size_t number) {
    for (std::size_t s = 1; s < sent.size(); ++s)
      if (number < sent[s].size())
        world.submit(static_cast<std::uint32_t>(s), send_to(0, sent[s][number]),
                     message(static_cast<std::uint32_t>(s), static_cast<int>(number), kCount));
  };
  const auto submit_receive = [&](std::size_t number) {
    if (number < receives.size()) world.submit(0, receives[number], std::vector<std::int32_t>(kCount, -1));
  };
  constexpr std::size_t kMost = 4;
  if (order == Order::sends_first)
    for (std::size_t i = 0; i < kMost; ++i) submit_sends(i), world.run();
  for (std::size_t i = 0; i < kMost; ++i) {
    submit_receive(i);
    if (order == Order::in_turn) world.run(), submit_sends(i);
    if (order != Order::receives_first) world.run();
  }
  if (order == Order::receives_first)
    for (std::size_t i = 0; i < kMost; ++i) submit_sends(i), world.run();
  std::vector<Got> got;
  for (const auto& posted : world.posted(0)) got.push_back(got_by(*posted));
  return got;
}

std::vector<Tags> tag_lists(std::size_t most) {
  std::vector<Tags> lists = {{}};
  for (std::size_t i = 0; i < lists.size(); ++i)
    for (const std::uint32_t tag : {0u, 1u})
      if (lists[i].size() < most) lists.push_back(lists[i]), lists.back().push_back(tag);
  return lists;
}

// All programs of up to three receives at rank 0, from rank 1, 2 or any, and up to two messages of each of the two, with
// two tags, in three orders.
TEST(Receives, MatchAsMpiDoesInEverySmallProgram) {
  std::vector<Ask> kinds;
  for (const int peer : {kAny, 1, 2})
    for (const std::uint32_t tag : {0u, 1u}) kinds.push_back(recv_from(peer, tag));
  std::vector<std::vector<Ask>> programs = {{}};
  for (std::size_t i = 0; i < programs.size(); ++i)
    for (const Ask& kind : kinds)
      if (programs[i].size() < 3) programs.push_back(programs[i]), programs.back().push_back(kind);
  std::size_t received = 0;
  for (const Tags& of_one : tag_lists(2))
    for (const Tags& of_two : tag_lists(2))
      for (const auto& receives : programs) {
        const std::vector<Tags> sent = {{}, of_one, of_two};
        const Permitted permitted(receives, sent);
        for (const Order order : {Order::sends_first, Order::receives_first, Order::in_turn}) {
          const std::vector<Got> got = outcome_of(receives, sent, order);
          for (const Got& one : got) received += one.first >= 0;
          if (permitted.contains(got)) continue;
          std::string text;
          for (std::size_t i = 0; i < receives.size(); ++i)
            text += fmt::format("recv from {} tag {} got {} of {}; ", receives[i].peer, receives[i].tag, got[i].second,
                                got[i].first);
          FAIL() << text
                 << fmt::format("sent by 1: {} by 2: {}; order {}", fmt::join(of_one, ","), fmt::join(of_two, ","),
                                static_cast<int>(order));
        }
      }
  EXPECT_GT(received, 10000u);
}

TEST(Receives, TheModelObjectsToAWrongMatching) {
  const std::vector<Tags> sent = {{}, {0, 0}, {0}};
  const std::vector<Ask> receives = {recv_from(kAny, 0), recv_from(1, 0)};
  const Permitted permitted(receives, sent);
  EXPECT_TRUE(permitted.contains({{1, 0}, {1, 1}}));
  EXPECT_TRUE(permitted.contains({{2, 0}, {1, 0}}));
  EXPECT_FALSE(permitted.contains({{1, 1}, {1, 0}}));    // a message overtook another
  EXPECT_FALSE(permitted.contains({{2, 0}, {1, 1}}));    // one was left out
  EXPECT_FALSE(permitted.contains({{2, 0}, {-1, -1}}));  // one was not received
  EXPECT_FALSE(permitted.contains({{-1, -1}, {1, 0}}));  // the later receive took it
}

// Large worlds by seed ------------------------------------------------------------------------------------------------

// What holds for any mix: see the names of the checks.
void expect_matched(World& world, std::uint32_t size, std::uint32_t to) {
  std::vector<const Posted*> receives;
  std::map<std::pair<int, std::uint32_t>, std::vector<int>> sent, got;  // by sender and tag: numbers of the messages
  for (const auto& posted : world.posted(to))
    if (!posted->call.sends) receives.push_back(posted.get());
  for (std::uint32_t from = 0; from < size; ++from) {
    int number = 0;
    for (const auto& posted : world.posted(from))
      if (posted->call.sends && posted->call.peer == static_cast<int>(to))
        sent[{static_cast<int>(from), posted->call.tag}].push_back(number++);
  }
  for (const Posted* receive : receives)
    if (const Got one = got_by(*receive); one.first >= 0) got[{one.first, receive->call.tag}].push_back(one.second);
  for (const auto& [key, numbers] : got) {
    auto expected = sent[key];
    ASSERT_LE(numbers.size(), expected.size());
    expected.resize(numbers.size());
    EXPECT_EQ(numbers, expected) << "in order, none left out, none twice: from " << key.first << " tag " << key.second;
  }
  const auto fits = [](const Ask& receive, std::pair<int, std::uint32_t> key) {
    return (receive.peer == kAny || receive.peer == key.first) && receive.tag == key.second;
  };
  for (const auto& [key, numbers] : sent) {
    const bool left_over = got[key].size() < numbers.size();
    bool later_got_one = false;
    for (auto at = receives.rbegin(); at != receives.rend(); ++at) {
      const bool unmatched = got_by(**at).first < 0;
      EXPECT_FALSE(unmatched && fits((*at)->call, key) && (left_over || later_got_one))
          << "a receive waits though a message from " << key.first << " tag " << key.second
          << " fits it or went to a later one";
      later_got_one = later_got_one || (got_by(**at).first == key.first && (*at)->call.tag == key.second);
    }
  }
}

void run_random_program(std::uint64_t seed) {
  Random random(seed);
  const auto size = static_cast<std::uint32_t>(2 + random.below(4));
  World world(size, std::size_t{128} << random.below(6));
  const std::size_t counts[] = {1, 40, 7, 3000};  // by tag, as those that match must be equal
  const auto ranks = [&](std::uint32_t but) {
    const auto rank = static_cast<std::uint32_t>(random.below(size - 1));
    return static_cast<int>(rank + (rank >= but));
  };
  std::map<std::pair<std::uint32_t, int>, int> numbers;
  for (int i = 0; i < 60; ++i) {
    const auto rank = static_cast<std::uint32_t>(random.below(size));
    const auto tag = static_cast<std::uint32_t>(random.below(4));
    const int peer = ranks(rank);
    if (random.below(2) == 0)
      world.submit(rank, send_to(peer, tag), message(rank, numbers[{rank, peer}]++, counts[tag]));
    else world.submit(rank, recv_from(random.below(2) ? peer : kAny, tag), std::vector<std::int32_t>(counts[tag], -1));
    for (std::uint64_t turns = random.below(8); turns > 0; --turns)
      world.engine(static_cast<std::uint32_t>(random.below(size))).progress();
  }
  world.run();
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    EXPECT_TRUE(world.engine(rank).failure_cause().ok()) << world.engine(rank).failure_cause().message;
    expect_matched(world, size, rank);
  }
}

TEST(Receives, MatchAsMpiDoesInRandomPrograms) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    run_random_program(seed);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace gradsync
