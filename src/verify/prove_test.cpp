#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "algorithms/catalogue.hpp"
#include "schedule/emit.hpp"
#include "schedule/layouts.hpp"
#include "verify/proof.hpp"

namespace gradsync {
namespace {

using testing::HasSubstr;

Operand in(std::uint32_t first, std::uint32_t count = 1) { return {Space::input, {first, count}}; }
Operand out(std::uint32_t first, std::uint32_t count = 1) { return {Space::output, {first, count}}; }
Operand scratch(std::uint32_t first, std::uint32_t count = 1) { return {Space::scratch, {first, count}}; }

// A world of hand-made schedules.
class Hand {
 public:
  Hand(Collective collective, std::uint32_t world, std::uint32_t chunks, std::uint32_t scratch_copies = 0)
      : schedules_(world) {
    for (std::uint32_t r = 0; r < world; ++r) {
      const Window all{0, chunks};
      const bool source = collective == Collective::all_reduce || r == 0;
      schedules_[r] = {{collective, Algorithm::flat, world, 0, 1, {}},
                       r,
                       {chunks, source ? all : Window{}, all, scratch_copies},
                       {}};
    }
  }
  Emit rank(std::uint32_t r) { return Emit(schedules_[r].steps); }
  Schedule& schedule(std::uint32_t r) { return schedules_[r]; }
  Proof proof(const ProveOptions& options = {}) { return prove(schedules_, options); }
  std::string message(const ProveOptions& options = {}) { return proof(options).status.message; }

 private:
  std::vector<Schedule> schedules_;
};

// Both ranks copy, exchange and add: the smallest all-reduce.
Hand exchange(std::uint32_t chunks = 1) {
  Hand hand(Collective::all_reduce, 2, chunks);
  for (std::uint32_t r : {0u, 1u}) {
    Emit emit = hand.rank(r);
    emit.copy(out(0, chunks), in(0, chunks));
    emit.send(1 - r, out(0, chunks));
    emit.recv_reduce(1 - r, out(0, chunks));
  }
  return hand;
}

TEST(Prove, AcceptsAnExchangeAndCountsIt) {
  ProveOptions options;
  options.layouts = layouts_of_count(10);
  const Proof proof = exchange(3).proof(options);
  ASSERT_TRUE(proof.ok()) << proof.status.message;
  EXPECT_EQ(proof.counts, (ProofCounts{1, 2, 1, 20, 10, 20, 10, 10, 1}));
}

TEST(Prove, CountsMessagesWithoutElements) {
  ProveOptions options;
  options.layouts = layouts_of_count(0);
  const Proof proof = exchange(3).proof(options);
  ASSERT_TRUE(proof.ok()) << proof.status.message;
  EXPECT_EQ(proof.counts, (ProofCounts{1, 2, 1, 0, 0, 0, 0, 0, 1}));
}

TEST(Prove, NamesAReadOfWhatNobodyWrote) {
  Hand hand = exchange();
  hand.schedule(1).steps.erase(hand.schedule(1).steps.begin());
  EXPECT_EQ(
      hand.message(),
      "rank 1 step 0 (send of 1 chunks of output 0 to rank 0): reads chunk 0 of output, which nobody has written");
}

TEST(Prove, NamesAContributionThatComesTwice) {
  Hand hand = exchange();
  hand.rank(0).reduce(out(0), in(0));
  EXPECT_EQ(hand.message(),
            "rank 0 step 3 (reduce of 1 chunks from input 0 into output 0): combines chunk 0 of ranks {0} with chunk 0 "
            "of output, "
            "which holds chunk 0 of ranks {0 1}");
}

TEST(Prove, NamesAnOutputThatLacksAContribution) {
  Hand hand(Collective::all_reduce, 1, 1);
  EXPECT_EQ(hand.message(), "rank 0 ends with nothing in output chunk 0, expected chunk 0 of every rank once");
  Hand assigned = exchange();
  assigned.schedule(1).steps[2].mode = Mode::assign;
  EXPECT_EQ(assigned.message(),
            "rank 1 ends with chunk 0 of ranks {0} in output chunk 0, expected chunk 0 of every rank once");
}

TEST(Prove, NamesASumOfDifferentChunks) {
  Hand hand(Collective::all_reduce, 1, 2, 1);
  hand.rank(0).copy(out(0), in(1));
  EXPECT_THAT(hand.message(), HasSubstr("source and target are different chunks of the message"));
}

TEST(Prove, NamesAMessageOfTheWrongSizeOrPlace) {
  Hand shorter = exchange(2);
  shorter.schedule(0).steps[1].count = 1;
  EXPECT_THAT(shorter.message(),
              HasSubstr("rank 1 step 2 (recv_reduce of 2 chunks from rank 0 into output 0): the message "
                        "(step 1 of rank 0) has 1 chunks, expected 2"));
  Hand elsewhere = exchange(2);
  elsewhere.schedule(0).steps[1].first = 1;
  EXPECT_THAT(elsewhere.message(),
              HasSubstr("the message (step 1 of rank 0) starts at chunk 1 of the message, expected 0"));
}

TEST(Prove, NamesStepsThatLeaveTheirSpaces) {
  const auto first_step = [](Step step) {
    Hand hand = exchange(2);
    hand.schedule(0).steps[0] = step;
    return hand.message();
  };
  EXPECT_THAT(first_step({2, 1, 0, 1, Verb::send}), HasSubstr("chunks 2+1 lie outside output, which has 2"));
  EXPECT_THAT(first_step({0, 3, 0, 1, Verb::send}), HasSubstr("chunks 0+3 lie outside output, which has 2"));
  EXPECT_THAT(first_step({0, 1, 0, 1, Verb::send, Mode::assign, Space::scratch}),
              HasSubstr("chunks 0+1 lie outside scratch, which has 0"));
  EXPECT_THAT(first_step({0, 1, 0, 1, Verb::recv, Mode::assign, Space::input}), HasSubstr("writes the input"));
  EXPECT_THAT(first_step({0, 1, 0, 2, Verb::send}), HasSubstr("there is no rank 2 in a world of 2"));
  EXPECT_THAT(first_step({0, 1, 0, 0, Verb::send}), HasSubstr("the peer is the rank itself"));
  EXPECT_THAT(first_step({0, 1, 0, 1, Verb::send, Mode::combine}), HasSubstr("a send cannot combine"));
  EXPECT_THAT(first_step({0, 0, 0, 1, Verb::send}), HasSubstr("the range is empty"));
}

TEST(Prove, NamesWhoWaitsForWhomInADeadlock) {
  Hand hand = exchange();
  for (std::uint32_t r : {0u, 1u}) std::swap(hand.schedule(r).steps[1], hand.schedule(r).steps[2]);
  EXPECT_EQ(hand.message(),
            "deadlock of 2 ranks with a window of 1 messages: rank 0 step 1 waits for a message from rank 1, "
            "rank 1 step 1 waits for a message from rank 0");
}

TEST(Prove, NamesAMessageThatIsNeverReceived) {
  Hand hand = exchange();
  hand.rank(0).send(1, out(0));
  EXPECT_EQ(hand.message(), "rank 1 never receives 1 messages of rank 0, the first of step 3");
}

// Each rank adds its own contribution first: right in exact arithmetic, but three floats do not add up to the same
// bits.
TEST(Prove, RejectsReplicasThatAddInDifferentOrders) {
  Hand hand(Collective::all_reduce, 3, 1);
  for (std::uint32_t r = 0; r < 3; ++r) {
    Emit emit = hand.rank(r);
    for (std::uint32_t k : {1u, 2u}) emit.send((r + k) % 3, in(0));
    emit.copy(out(0), in(0));
    for (std::uint32_t k : {1u, 2u}) emit.recv_reduce((r + k) % 3, out(0));
  }
  EXPECT_EQ(hand.message(), "rank 1 combines output chunk 0 in another order than rank 0: results differ in bits");
  ProveOptions options;
  options.domain = ProofDomain::fingerprints;
  EXPECT_THAT(hand.message(options), HasSubstr("results differ in bits"));
}

// Rank 0 sends three messages that rank 1 takes only after one from rank 2, which waits for rank 0's fourth.
TEST(Prove, FindsTheSmallestWindowAndThePeakOfStaging) {
  Hand hand(Collective::broadcast, 3, 3);
  Emit root = hand.rank(0), lazy = hand.rank(1), last = hand.rank(2);
  root.copy(out(0, 3), in(0, 3));
  for (std::uint32_t c = 0; c < 3; ++c) root.send(1, in(c));
  root.send(2, in(0, 3));
  last.recv(0, out(0, 3));
  last.send(1, out(0));
  lazy.recv(2, out(0));
  for (std::uint32_t c = 0; c < 3; ++c) lazy.recv(0, out(c));
  const Proof proof = hand.proof();
  ASSERT_TRUE(proof.ok()) << proof.status.message;
  EXPECT_EQ(proof.counts.window_min, 3u);
  EXPECT_EQ(proof.counts.staging_max, 4u);
}

TEST(Prove, RejectsInPlaceWhatOverwritesItsInput) {
  Hand hand(Collective::all_reduce, 2, 1, 1);
  for (std::uint32_t r : {0u, 1u}) {
    Emit emit = hand.rank(r);
    emit.send(1 - r, in(0));
    emit.recv(1 - r, out(0));
    emit.copy(scratch(0), in(0));
    emit.reduce(out(0), scratch(0));
  }
  ProveOptions options;
  EXPECT_EQ(hand.message(options), "");
  options.aliasing = Aliasing::in_place;
  EXPECT_THAT(hand.message(options),
              HasSubstr("rank 1 step 3 (reduce of 1 chunks from scratch 0 into output 0): combines"));
}

TEST(Prove, RejectsSpacesThatTheCollectiveDoesNotHave) {
  Hand hand(Collective::broadcast, 2, 1);
  hand.schedule(1).shape.output = {};
  EXPECT_EQ(hand.message(), "broadcast rank 1: output is chunks 0+0, expected 0+1");
  Hand none(Collective::all_reduce, 1, 1);
  none.schedule(0).shape.chunks = 0;
  EXPECT_EQ(none.message(), "rank 0: the message has no chunks");
}

TEST(Prove, RejectsUnevenBlocksThatDoNotMatch) {
  const Recipe recipe{Collective::all_to_all, Algorithm::direct, 3, 0, 1, {}};
  ProveOptions options;
  options.layouts = [](const Recipe&, const Shape&, std::uint32_t rank) {
    std::vector<std::uint64_t> sent, received;
    for (std::uint32_t other = 0; other < 3; ++other)
      sent.push_back(rank * 3 + other), received.push_back(other * 3 + rank);
    return Layouts(Layout::given_blocks(sent), Layout::given_blocks(received));
  };
  const Proof right = prove(recipe, options);
  ASSERT_TRUE(right.ok()) << right.status.message;
  EXPECT_EQ(right.counts.sent, 1u + 2 + 3 + 5 + 6 + 7);
  EXPECT_EQ(right.counts.sent_max, 6u + 7);
  options.layouts = [](const Recipe&, const Shape&, std::uint32_t rank) {
    return Layouts(Layout::given_blocks(std::vector<std::uint64_t>(3, rank + 1)));
  };
  EXPECT_THAT(prove(recipe, options).status.message,
              HasSubstr("has 2 elements, expected 3 in chunks of the same sizes"));
}

TEST(Prove, RefusesWhatItCannotProve) {
  EXPECT_THAT(prove(Recipe{Collective::all_reduce, Algorithm::ring, 0, 0, 1, {}}).status.message,
              HasSubstr("world of 0 ranks"));
  EXPECT_THAT(prove(Recipe{Collective::send, Algorithm::direct, 3, 0, 1, {}}).status.message,
              HasSubstr("send is proven in a world of 2, not of 3"));
  ProveOptions options;
  options.domain = ProofDomain::sets;
  EXPECT_THAT(
      prove(Recipe{Collective::all_reduce, Algorithm::recursive_doubling, 257, 0, 1, {}}, options).status.message,
      HasSubstr("sets of contributions reach 256 ranks, not 257"));
}

// Owner p of a part of f of S elements sends S - f of contributions and (n - 1) f of results, and adds (n - 1) f.
TEST(UnevenShards, AreProvenAndCountedExactly) {
  for (std::uint32_t n = 3; n <= 9; ++n)
    for (const std::uint32_t segments : {1u, 2u, 4u}) {
      Recipe recipe{Collective::all_reduce, Algorithm::two_shot, n, 0, segments, {}};
      recipe.shards.assign(n, 3);
      recipe.shards[n / 2] = 0;
      recipe.shards[0] = 1;
      const std::uint64_t unit = 4, sum = 1 + 3 * (n - 2), count = unit * sum;
      ProveOptions options;
      options.layouts = layouts_of_count(count);
      const Proof proof = prove_all_aliasings(recipe, options);
      ASSERT_TRUE(proof.ok()) << proof.status.message;
      EXPECT_EQ(proof.counts.sent, 2 * (n - 1) * count);
      EXPECT_EQ(proof.counts.sent_max, count + (n - 2) * 3 * unit);
      EXPECT_EQ(proof.counts.reduced, (n - 1) * count);
      EXPECT_EQ(proof.counts.reduced_max, (n - 1) * 3 * unit);
      EXPECT_EQ(proof.counts.messages, std::uint64_t{2} * n * (n - 1) * segments);  // those of nothing, too
    }
}

// Between hosts of two ranks, the slow host's bytes out of it are the message once.
TEST(UnevenShards, OfHostsAreProven) {
  for (const std::uint32_t segments : {1u, 3u}) {
    const Recipe recipe{
        Collective::all_reduce, Algorithm::hierarchical, 8, 0, segments, {0, 0, 1, 1, 2, 2, 3, 3}, {1, 0, 1, 1}};
    const std::uint64_t count = 6 * 2 * 3;
    ProveOptions options;
    options.layouts = layouts_of_count(count);
    const Proof proof = prove_all_aliasings(recipe, options);
    ASSERT_TRUE(proof.ok()) << proof.status.message;
    std::uint64_t crossing = 0;
    for (const std::uint32_t rank : {2u, 3u}) {
      const Schedule schedule = make_schedule(recipe, rank);
      const Layouts layouts(layout_for(recipe, schedule.shape, count));
      for (const Step& step : schedule.steps)
        if (step.verb == Verb::send && recipe.hosts[step.peer] != 1)
          crossing += elements_of(schedule.shape, layouts, step.space, step.range());
    }
    EXPECT_EQ(crossing, count);
  }
}

}  // namespace
}  // namespace gradsync
