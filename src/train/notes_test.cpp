#include "train/notes.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "base/status.hpp"

namespace gradsync {
namespace {

const std::vector<Parameter> kModel = {{"a", {1}}, {"b", {1}}, {"c", {1}}};

Blame blame() {
  return {kModel, 7, [](int rank) { return fmt::format("rank {} (host h)", rank); }};
}

void miss(RankNote& note, const std::vector<std::uint32_t>& parameters) {
  note.missing = parameters;
  note.missing_total = parameters.size();
}

TEST(Notes, NothingSaidIsNothingWrong) {
  const std::vector<RankNote> notes(3);
  EXPECT_TRUE(verdict_of(notes, blame()).ok());
}

TEST(Notes, MissingGradientsAreNamedWithTheirRanks) {
  std::vector<RankNote> notes(3);
  miss(notes[0], {2});
  miss(notes[2], {0, 2});
  const Status verdict = verdict_of(notes, blame());
  EXPECT_EQ(verdict.code, ErrorCode::invalid_argument);
  EXPECT_EQ(verdict.peer, 0);
  EXPECT_EQ(verdict.message,
            "step 7: no gradient for \"a\" on rank 2, \"c\" on ranks 0 and 2: every parameter must be ready before "
            "finish(), or find_unused on");
}

TEST(Notes, ManyMissingGradientsAreNamedInPart) {
  std::vector<Parameter> model;
  RankNote note;
  for (std::uint32_t p = 0; p < 40; ++p) {
    model.push_back({fmt::format("p{}", p), {1}});
    note.missing.push_back(p);
  }
  note.missing_total = 40;
  Blame all = blame();
  all.parameters = model;
  const std::string message = verdict_of(std::vector<RankNote>{note}, all).message;
  EXPECT_NE(message.find("\"p7\" on rank 0 and others, up to 40 on one rank"), std::string::npos) << message;
  EXPECT_EQ(message.find("\"p8\""), std::string::npos) << message;
}

TEST(Notes, AFailureOutweighsWhatItHasBroughtAbout) {
  std::vector<RankNote> notes(2);
  miss(notes[0], {0});
  notes[1].not_finite = 2;
  notes[1].failed.code = ErrorCode::out_of_memory;
  notes[1].failed.message = "no memory for rows";
  const Status verdict = verdict_of(notes, blame());
  EXPECT_EQ(verdict.code, ErrorCode::out_of_memory);
  EXPECT_EQ(verdict.message, "step 7: rank 1 (host h): no memory for rows");
}

TEST(Notes, ValuesThatAreNotFiniteAreNamed) {
  std::vector<RankNote> notes(2);
  notes[1].not_finite = 1;
  notes[1].at = 12;
  const Status verdict = verdict_of(notes, blame());
  EXPECT_EQ(verdict.code, ErrorCode::not_finite);
  EXPECT_EQ(verdict.message, "step 7: the gradient of \"b\" on rank 1 (host h) is not finite at element 12");
}

TEST(Notes, ArriveOnEveryRankAsTheyWereSent) {
  std::vector<Communicator> ranks = Communicator::threads(3);
  std::vector<std::thread> threads;
  for (Communicator& comm : ranks)
    threads.emplace_back([&] {
      const auto rank = static_cast<std::uint32_t>(comm.rank());
      RankNote mine;
      if (rank == 1) {
        mine.failed.code = ErrorCode::internal;
        mine.failed.message.assign(1000, 'x');
        mine.missing = {4, 9};
        mine.missing_total = 17;
        mine.not_finite = 3;
        mine.at = 8;
      }
      const std::vector<RankNote> notes = exchange_notes(comm, rank, 3, mine);
      ASSERT_EQ(notes.size(), 3u);
      EXPECT_TRUE(notes[0].failed.ok());
      EXPECT_EQ(notes[0].not_finite, -1);
      EXPECT_EQ(notes[1].failed.code, ErrorCode::internal);
      EXPECT_EQ(notes[1].failed.message, std::string(352, 'x'));  // as much as there is room for
      EXPECT_EQ(notes[1].missing, (std::vector<std::uint32_t>{4, 9}));
      EXPECT_EQ(notes[1].missing_total, 17u);
      EXPECT_EQ(notes[1].not_finite, 3);
      EXPECT_EQ(notes[1].at, 8u);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gradsync
