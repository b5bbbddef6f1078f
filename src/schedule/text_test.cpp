#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/limits.hpp"
#include "base/random.hpp"
#include "schedule/emit.hpp"
#include "schedule/schedule.hpp"

namespace gradsync {
namespace {

// Rank 3 of a made-up world that uses every verb, every space and wrapped ranges.
Schedule example() {
  Schedule schedule{
      {Collective::all_reduce, Algorithm::circulant, 5, 2, 4, {0, 0, 1, 1, 7}}, 3, {5, {0, 5}, {1, 3}, 2}, {}};
  Emit out(schedule.steps);
  out.copy({Space::output, {0, 3}}, {Space::input, {1, 3}});
  out.send(4, {Space::input, {3, 4}});
  out.recv(1, {Space::scratch, {0, 1}});
  out.recv_reduce(0, {Space::scratch, {8, 5}});
  out.reduce({Space::output, {2, 2}}, {Space::scratch, {4, 2}});
  return schedule;
}

const char* const kExampleText =
    "gradsync schedule 1\n"
    "recipe collective=all_reduce algorithm=circulant world=5 root=2 segments=4 hosts=0,0,1,1,7\n"
    "rank 3\n"
    "shape chunks=5 input=[0..5) output=[1..4) scratch=2\n"
    "0 copy output[0..3) <- input[1..4)\n"
    "1 send 4 input[3..5)+[0..2)\n"
    "2 recv 1 scratch[0..1)\n"
    "3 recv_reduce 0 scratch[8..10)+[5..8)\n"
    "4 reduce output[2..3)+[0..1) <- scratch[4..5)+[0..1)\n"
    "end\n";

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

std::string error_of(std::string_view text) {
  const Result<Schedule> parsed = schedule_from_text(text);
  if (parsed.ok()) return "no error";
  EXPECT_EQ(parsed.status().code, ErrorCode::invalid_argument);
  constexpr std::string_view start = "schedule text: ";
  EXPECT_EQ(parsed.status().message.substr(0, start.size()), start);
  return parsed.status().message.substr(start.size());
}

TEST(ScheduleText, ReadsAsWritten) { EXPECT_EQ(to_text(example()), kExampleText); }

TEST(ScheduleText, ParsesToTheSameSchedule) {
  const Result<Schedule> parsed = schedule_from_text(kExampleText);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message;
  EXPECT_EQ(*parsed, example());
}

TEST(ScheduleText, HoldsShards) {
  Schedule schedule = example();
  schedule.recipe.shards = {0, 65535, 1};
  const std::string text = replaced(kExampleText, "hosts=0,0,1,1,7\n", "hosts=0,0,1,1,7 shards=0,65535,1\n");
  EXPECT_EQ(to_text(schedule), text);
  const Result<Schedule> parsed = schedule_from_text(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message;
  EXPECT_EQ(*parsed, schedule);
  EXPECT_EQ(error_of(replaced(text, "65535,1", "65535,x")), "line 2 column 107: expected a weight, found 'x'");
  EXPECT_EQ(error_of(replaced(text, "65535,1", "1,1,1,1,1")),
            "line 2 column 108: expected the end of the line, found ','");
}

TEST(ScheduleText, TakesCommentsBlanksAndStepsWithoutNumbers) {
  const Result<Schedule> parsed = schedule_from_text(
      "# a ring of two\n\ngradsync  schedule 1 # version\r\n"
      "recipe collective = all_reduce algorithm=ring world=2 root=0 segments=1 hosts = none\n\n\n"
      "\trank 1\nshape chunks=2 input=[0..2) output=[0..2) scratch=0\n"
      "  send 0 input[0..1) # one's own\n# nothing\nrecv 0 output [ 0 .. 1 )\nend");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message;
  EXPECT_EQ(parsed->steps.size(), 2u);
  EXPECT_EQ(to_text(parsed->steps[1]), "recv 0 output[0..1)");
  EXPECT_TRUE(parsed->recipe.hosts.empty());
}

TEST(ScheduleText, PrintsAStepAloneAsIfItsSpaceWentOn) {
  EXPECT_EQ(to_text(example().steps[1]), "send 4 input[3..7)");
  EXPECT_EQ(to_text(example().steps[4]), "reduce output[2..4) <- scratch[4..6)");
}

TEST(ScheduleText, SaysWhereTheHeaderIsWrong) {
  const auto with = [](std::string_view what, std::string_view text) {
    return error_of(replaced(kExampleText, what, text));
  };
  EXPECT_EQ(error_of(""), "line 1 column 1: expected 'gradsync', found the end of the text");
  EXPECT_EQ(error_of("\n\n  hello"), "line 3 column 3: expected 'gradsync', found 'hello'");
  EXPECT_EQ(with("schedule 1", "schedule 2"), "line 1 column 19: expected version 1, found '2'");
  EXPECT_EQ(with("schedule 1", "schedule 1 1"), "line 1 column 21: expected the end of the line, found '1'");
  EXPECT_EQ(with("recipe ", "recipes "), "line 2 column 1: expected 'recipe', found 'recipes'");
  EXPECT_EQ(with("=all_reduce", "=all_produce"),
            "line 2 column 19: expected a collective (" + known_collectives() + "), found 'all_produce'");
  EXPECT_EQ(with("=circulant", "=7"), "line 2 column 40: expected an algorithm, found '7'");
  EXPECT_EQ(with("world=5", "world=0"), "line 2 column 56: expected a number of ranks from 1 to 1048576, found '0'");
  EXPECT_EQ(with("world=5", "world=99999999999999999999999"),
            "line 2 column 56: expected a number of ranks from 1 to 1048576, found '99999999999999999999999'");
  EXPECT_EQ(with("world=5 ", ""), "line 2 column 50: expected 'world', found 'root'");
  EXPECT_EQ(with("root=2", "root=5"), "line 2 column 63: expected a rank from 0 to 4, found '5'");
  EXPECT_EQ(with("segments=4", "segments=65"),
            "line 2 column 74: expected a number of segments from 1 to 64, found '65'");
  EXPECT_EQ(with("0,0,1,1,7", "0,0,1"), "line 2 column 87: expected ',', found the end of the line");
  EXPECT_EQ(with("0,0,1,1,7", "0,0,1,1,7,8"), "line 2 column 91: expected the end of the line, found ','");
  EXPECT_EQ(with("0,0,1,1,7", "some"), "line 2 column 82: expected a host number or 'none', found 'some'");
  EXPECT_EQ(with("rank 3", "rank x"), "line 3 column 6: expected a rank, found 'x'");
  EXPECT_EQ(with("rank 3", "rank 5"), "line 3 column 6: expected a rank from 0 to 4, found '5'");
  EXPECT_EQ(with("rank 3", "rank -3"), "line 3 column 6: expected a rank, found '-'");
  EXPECT_EQ(with("chunks=5", "chunks=0"),
            "line 4 column 14: expected a number of chunks from 1 to 4294967295, found '0'");
  EXPECT_EQ(with("input=[0..5)", "input=[0..6)"), "line 4 column 26: expected an end from 0 to 5, found '6'");
  EXPECT_EQ(with("output=[1..4)", "output=[4..1)"), "line 4 column 40: expected an end from 4 to 5, found '1'");
  EXPECT_EQ(with("output=[1..4)", "output=[1..4]"), "line 4 column 41: expected ')', found ']'");
  EXPECT_EQ(with("scratch=2", "scratch=4294967295"),
            "line 4 column 51: expected a number of scratch copies from 0 to 858993459, found '4294967295'");
}

TEST(ScheduleText, SaysWhereAStepIsWrong) {
  const auto with = [](std::string_view text) {
    return error_of(replaced(kExampleText, "1 send 4 input[3..5)+[0..2)", text));
  };
  EXPECT_EQ(with("1 sent 4 input[0..1)"),
            "line 6 column 3: expected a step (send, recv, recv_reduce, copy, reduce) or 'end', found 'sent'");
  EXPECT_EQ(with("2 send 4 input[0..1)"), "line 6 column 1: expected the step's number 1, found '2'");
  EXPECT_EQ(with("1 end"),
            "line 6 column 3: expected a step (send, recv, recv_reduce, copy, reduce) or 'end', found 'end'");
  EXPECT_EQ(with("[0..1)"), "line 6 column 1: expected a step or 'end', found '['");
  EXPECT_EQ(with("1 send 5 input[0..1)"), "line 6 column 8: expected a rank from 0 to 4, found '5'");
  EXPECT_EQ(with("1 send 3 input[0..1)"), "line 6 column 8: expected another rank than its own, found '3'");
  EXPECT_EQ(with("1 send input[0..1)"), "line 6 column 8: expected a rank, found 'input'");
  EXPECT_EQ(with("1 send 4"), "line 6 column 9: expected a space (input, output, scratch), found the end of the line");
  EXPECT_EQ(with("1 send 4 inputs[0..1)"),
            "line 6 column 10: expected a space (input, output, scratch), found 'inputs'");
  EXPECT_EQ(with("1 recv 4 input[0..1)"),
            "line 6 column 10: expected a space that may be written (output, scratch), found 'input'");
  EXPECT_EQ(with("1 send 4 input"), "line 6 column 15: expected '[', found the end of the line");
  EXPECT_EQ(with("1 send 4 input[5..6)"), "line 6 column 16: expected a chunk from 0 to 4, found '5'");
  EXPECT_EQ(with("1 send 4 input[2..2)"), "line 6 column 19: expected an end from 3 to 5, found '2'");
  EXPECT_EQ(with("1 send 4 input[2..6)"), "line 6 column 19: expected an end from 3 to 5, found '6'");
  EXPECT_EQ(with("1 send 4 scratch[4..6)"), "line 6 column 21: expected an end 5, found '6'");
  EXPECT_EQ(with("1 send 4 input[2-3)"), "line 6 column 17: expected '..', found '-'");
  EXPECT_EQ(with("1 send 4 input[2..3)+[0..1)"), "line 6 column 19: expected 5 before a '+', found '3'");
  EXPECT_EQ(with("1 send 4 input[0..5)+[0..1)"),
            "line 6 column 19: expected a range that starts later before a '+', found '5'");
  EXPECT_EQ(with("1 send 4 input[3..5)+[1..2)"), "line 6 column 23: expected the cycle's first chunk 0, found '1'");
  EXPECT_EQ(with("1 send 4 input[3..5)+[0..4)"), "line 6 column 26: expected an end from 1 to 3, found '4'");
  EXPECT_EQ(with("1 send 4 input[3..5)+[0..0)"), "line 6 column 26: expected an end from 1 to 3, found '0'");
  EXPECT_EQ(with("1 send 4 input[3..4) 7"), "line 6 column 22: expected the end of the line, found '7'");
  EXPECT_EQ(with("1 copy output[0..1) input[0..1)"), "line 6 column 21: expected '<-', found 'input'");
  EXPECT_EQ(with("1 copy output[0..1) <- input[0..2)"),
            "line 6 column 35: expected a source of 1 chunks instead of 2 before, found the end of the line");
  EXPECT_EQ(with("1 copy input[0..1) <- output[0..1)"),
            "line 6 column 8: expected a space that may be written (output, scratch), found 'input'");
  EXPECT_EQ(with("\x01"), "line 6 column 1: expected a step or 'end', found the byte 0x01");
  EXPECT_EQ(with(std::string(60, 'a')),
            "line 6 column 1: expected a step (send, recv, recv_reduce, copy, reduce) or 'end', "
            "found '" +
                std::string(40, 'a') + "...'");
}

TEST(ScheduleText, RefusesASpaceThatTheRankDoesNotHave) {
  const std::string text = replaced(kExampleText, "scratch=2", "scratch=0");
  EXPECT_EQ(error_of(text), "line 7 column 10: expected a space that this rank has, found 'scratch'");
}

TEST(ScheduleText, NoticesWhatIsMissingAtTheEnd) {
  EXPECT_EQ(error_of(replaced(kExampleText, "end\n", "")),
            "line 10 column 1: expected a step or 'end', found the end of the text");
  EXPECT_EQ(error_of(std::string(kExampleText) + "end\n"),
            "line 11 column 1: expected the end of the text, found 'end'");
}

TEST(ScheduleText, RefusesMoreBytesThanTheLimit) {
  const std::string text(limits::schedule_text_bytes_max + 1, ' ');
  const Result<Schedule> parsed = schedule_from_text(text);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().code, ErrorCode::out_of_range);
  EXPECT_EQ(parsed.status().message, "schedule text: 67108865 bytes, allowed are 67108864");
}

Schedule random_schedule(Random& random) {
  const auto below = [&](std::uint64_t bound) { return static_cast<std::uint32_t>(random.below(bound)); };
  Schedule schedule;
  schedule.recipe = {static_cast<Collective>(below(kCollectiveCount)),
                     static_cast<Algorithm>(below(kAlgorithmCount)),
                     2 + below(6),
                     0,
                     1 + below(limits::segments_max),
                     {}};
  schedule.recipe.root = below(schedule.recipe.world);
  schedule.rank = below(schedule.recipe.world);
  Shape& shape = schedule.shape;
  shape.chunks = 1 + below(9);
  shape.input = {below(shape.chunks), 0};
  shape.input.count = 1 + below(shape.chunks - shape.input.first);
  shape.output = {below(shape.chunks), 0};
  shape.output.count = 1 + below(shape.chunks - shape.output.first);
  shape.scratch_copies = 1 + below(3);
  Emit out(schedule.steps);
  const auto place = [&](Space space, std::uint32_t count) {
    return Operand{space, {below(shape.size(space)), count}};
  };
  for (std::uint32_t steps = below(30); out.emitted() < steps;) {
    const Space written = below(2) ? Space::output : Space::scratch, read = static_cast<Space>(below(3));
    const std::uint32_t peer = (schedule.rank + 1 + below(schedule.recipe.world - 1)) % schedule.recipe.world;
    const std::uint32_t count = 1 + below(std::min(shape.cycle(written), shape.cycle(read)));
    const std::uint32_t what = below(5);
    if (what == 0) out.send(peer, place(read, count));
    if (what == 1) out.recv(peer, place(written, count));
    if (what == 2) out.recv_reduce(peer, place(written, count));
    if (what == 3) out.copy(place(written, count), place(read, count));
    if (what == 4) out.reduce(place(written, count), place(read, count));
  }
  return schedule;
}

TEST(ScheduleText, RoundTripsForRandomSchedules) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const Schedule schedule = random_schedule(random);
    const Result<Schedule> parsed = schedule_from_text(to_text(schedule));
    ASSERT_TRUE(parsed.ok()) << "seed " << seed << ": " << parsed.status().message;
    ASSERT_EQ(*parsed, schedule) << "seed " << seed;
  }
}

TEST(ScheduleText, AnswersAnyDamageWithAnErrorOrASchedule) {
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    Random random(seed);
    std::string text = kExampleText;
    for (std::uint64_t i = 0, n = 1 + random.below(3); i < n; ++i) {
      const std::size_t at = random.below(text.size());
      const std::uint64_t how = random.below(4);
      if (how == 0) text[at] = static_cast<char>(random.below(256));
      if (how == 1) text.erase(at, 1 + random.below(5));
      if (how == 2) text.insert(at, 1, "0123456789[).+#\n abc=,<-"[random.below(24)]);
      if (how == 3) text.resize(at + 1);
    }
    const Result<Schedule> parsed = schedule_from_text(text);
    if (parsed.ok()) {
      ASSERT_EQ(*schedule_from_text(to_text(*parsed)), *parsed) << "seed " << seed;
    } else {
      ++refused;
      ASSERT_NE(parsed.status().message.find(": expected "), std::string::npos) << "seed " << seed;
    }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace gradsync
