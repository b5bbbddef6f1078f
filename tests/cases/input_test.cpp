// Bad input: a clear error each, with what is known or allowed, and no harm done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/limits.hpp"
#include "comm/environment.hpp"
#include "comm/sockets.hpp"
#include "comm/store_server.hpp"
#include "schedule/schedule.hpp"
#include "support/workers.hpp"
#include "world.hpp"

namespace gradsync::cases {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

// What a call throws; fails the test if it does not.
Status thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) { return error.status(); }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

void expect_error(const Status& status, ErrorCode code, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code, code) << status.message;
  for (const std::string& word : words) EXPECT_THAT(status.message, HasSubstr(word));
}

// The options of GRADSYNC_OPTIONS=text.
Status options_status(const std::string& text) {
  std::vector<std::string> warnings;
  return options_from({{"GRADSYNC_OPTIONS", text}}, warnings).status();
}

TEST(CaseBadInput, UnknownNamesInTheEnvironmentAreAnsweredWithTheKnownOnes) {
  expect_error(options_status("transport=pigeon"), ErrorCode::invalid_argument,
               {"GRADSYNC_OPTIONS", "pigeon", "auto, shm, tcp"});
  expect_error(options_status("algorthm=ring"), ErrorCode::invalid_argument, {"algorthm", "transport, timeout"});
  expect_error(options_status("lanes=17"), ErrorCode::invalid_argument, {"17", "1 to 16"});
  expect_error(options_status("timeout=soon"), ErrorCode::invalid_argument, {"soon", "seconds"});
  EXPECT_FALSE(algorithm_named("rung"));
  EXPECT_FALSE(dtype_named("f31"));
  EXPECT_FALSE(transport_named("pigeon"));
}

TEST(CaseBadInput, AnAlgorithmThatACollectiveHasNotIsAnsweredWithThoseItHas) {
  in_world({.size = 2, .medium = Medium::shm}, [](Communicator& comm) {
    std::vector<float> x(8);
    const auto with = [&](Algorithm algorithm) {
      return thrown_by([&] { comm.all_reduce(view(x), ReduceOp::sum, {.algorithm = algorithm}); });
    };
    expect_error(with(Algorithm::direct), ErrorCode::invalid_argument, {"direct", "ring", "two_shot", "hierarchical"});
    expect_error(with(static_cast<Algorithm>(200)), ErrorCode::invalid_argument, {"ring", "two_shot", "hierarchical"});
    expect_error(thrown_by([&] { comm.broadcast(view(x), 0, {.algorithm = Algorithm::ring}); }),
                 ErrorCode::invalid_argument, {"broadcast", "ring", "flat, tree"});
    EXPECT_EQ(thrown_by([&] {
                comm.all_reduce(view(x), ReduceOp::sum, {.algorithm = Algorithm::tree, .segments = 65});
              }).code,
              ErrorCode::invalid_argument);
    comm.barrier();
  });
}

TEST(CaseBadInput, WorldsOfZeroOrTooManyAndRanksOutsideAreRefused) {
  expect_error(thrown_by([] { Communicator::threads(0); }), ErrorCode::invalid_argument,
               {"0", std::to_string(limits::ranks_max)});
  expect_error(thrown_by([] { Communicator::threads(limits::ranks_max + 1); }), ErrorCode::invalid_argument,
               {std::to_string(limits::ranks_max + 1)});
  const auto joining = [](std::int64_t rank, std::int64_t size) {
    return thrown_by([=] {
      Options options;
      options.rank = rank, options.size = size;
      options.rendezvous = "tcp://127.0.0.1:1/job";
      options.start_timeout = 5s;
      Communicator::create(options);
    });
  };
  expect_error(joining(0, 0), ErrorCode::invalid_argument,
               {"world size is 0", "1 to " + std::to_string(limits::ranks_max)});
  expect_error(joining(0, std::int64_t{limits::ranks_max} + 1), ErrorCode::invalid_argument,
               {std::to_string(limits::ranks_max + 1)});
  expect_error(joining(4, 4), ErrorCode::invalid_argument, {"rank 4", "4 ranks", "0 to 3"});
  expect_error(joining(-2, 4), ErrorCode::invalid_argument, {"rank -2"});
  in_world({.size = 2}, [](Communicator& comm) {
    std::vector<float> x(4);
    for (int rank : {-1, 2, 1000}) {
      const std::string named = "rank " + std::to_string(rank);
      expect_error(thrown_by([&] { comm.broadcast(view(x), rank); }), ErrorCode::invalid_argument,
                   {named, "ranks 0 to 1"});
      expect_error(thrown_by([&] { comm.send(view(std::as_const(x)), rank); }), ErrorCode::invalid_argument,
                   {named, "ranks 0 to 1"});
      if (rank != any_rank)
        expect_error(thrown_by([&] { comm.recv(view(x), rank); }), ErrorCode::invalid_argument, {named});
      const std::vector<int> members = {comm.rank(), rank};
      expect_error(thrown_by([&] { comm.group(members); }), ErrorCode::invalid_argument, {named});
      expect_error(thrown_by([&] { comm.describe(rank); }), ErrorCode::invalid_argument, {named});
    }
    comm.barrier();
  });
}

TEST(CaseBadInput, ABufferShorterThanTheCountIsRefusedByBothNumbers) {
  in_world({.size = 2, .medium = Medium::tcp}, [](Communicator& comm) {
    std::vector<float> ten(10), nine(9);
    const ConstView in10 = view(std::as_const(ten)), in9 = view(std::as_const(nine));
    const View out9 = view(nine), out10 = view(ten);
    const auto refused = [](const std::function<void()>& call, const std::string& has, const std::string& needs) {
      expect_error(thrown_by(call), ErrorCode::invalid_argument, {"holds " + has + " elements, expected " + needs});
    };
    refused([&] { comm.all_reduce(in10, out9, ReduceOp::sum); }, "9", "10");
    refused([&] { comm.reduce_scatter(in9, View{ten.data(), 5, DType::f32}, ReduceOp::sum); }, "9", "10");
    refused([&] { comm.all_gather(in10, out9); }, "9", "20");
    refused([&] { comm.gather(in10, out9, comm.rank()); }, "9", "20");
    refused([&] { comm.scatter(in9, out10, comm.rank()); }, "9", "20");
    refused([&] { comm.reduce(in10, out9, ReduceOp::sum, comm.rank()); }, "9", "10");
    refused([&] { comm.all_to_all(in10, View{nine.data(), 8, DType::f32}); }, "8", "10");
    expect_error(thrown_by([&] { comm.all_to_all(in9, out9); }), ErrorCode::invalid_argument,
                 {"9 elements", "2 ranks"});
    const std::vector<std::size_t> counts = {4, 7}, one = {11};
    refused(
        [&] {
          comm.reduce_scatter(in10, View{nine.data(), counts[static_cast<std::size_t>(comm.rank())], DType::f32},
                              counts, ReduceOp::sum);
        },
        "10", "11");
    expect_error(thrown_by([&] { comm.all_gather(in10, out10, one); }), ErrorCode::invalid_argument,
                 {"1 counts", "2 ranks"});
    expect_error(thrown_by([&] {
                   comm.all_reduce(View{nullptr, 3, DType::f32}, ReduceOp::sum);
                 }),
                 ErrorCode::invalid_argument, {"null", "3 elements"});
    EXPECT_EQ(comm.counters().messages_sent, 0u);
    comm.barrier();
  });
}

TEST(CaseBadInput, AScheduleTextWithASyntaxErrorIsRefusedByLineAndColumn) {
  const std::string good =
      "gradsync schedule 1\nrecipe collective=all_reduce algorithm=ring world=2 root=0 segments=1 hosts=\nrank 0\n"
      "shape chunks=2 input=[0..2) output=[0..2) scratch=0\n0 send x output[0..1)\nend\n";
  const auto parsed = schedule_from_text(good);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.status().code, ErrorCode::invalid_argument);
  EXPECT_THAT(parsed.status().message, testing::ContainsRegex("line [0-9]+ column [0-9]+: expected"));
}

// Joins as rank 0 of 2 within 3 s; says how that ended and checks that it ended in time.
Status join_at(const std::string& rendezvous, std::chrono::nanoseconds bound) {
  const auto start = std::chrono::steady_clock::now();
  const Status status = thrown_by([&] {
    Options options;
    options.rank = 0, options.size = 2;
    options.rendezvous = rendezvous;
    options.start_timeout = 3s;
    Communicator::create(options);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, bound) << status.message;
  return status;
}

TEST(CaseBadInput, ARendezvousThatAcceptsAndSaysNothingIsATimeoutThatNamesIt) {
  auto listener = listen_tcp(*parse_address("127.0.0.1"));
  ASSERT_TRUE(listener) << listener.status().message;
  const Address address = local_address(listener->get());
  const Status status = join_at(fmt::format("tcp://{}/job", text(address)), 5s);
  EXPECT_EQ(status.code, ErrorCode::timeout) << status.message;
  EXPECT_THAT(status.message, HasSubstr(text(address)));
}

TEST(CaseBadInput, ARendezvousThatRefusesOrLacksItsOtherRanksIsATypedErrorInTime) {
  std::string refused;
  {
    auto listener = listen_tcp(*parse_address("127.0.0.1"));
    ASSERT_TRUE(listener);
    refused = text(local_address(listener->get()));
  }
  const Status status = join_at(fmt::format("tcp://{}/job", refused), 5s);
  EXPECT_THAT(status.code, AnyOf(ErrorCode::unavailable, ErrorCode::timeout)) << status.message;
  EXPECT_THAT(status.message, HasSubstr(refused));
  auto server = StoreServer::start(*parse_address("127.0.0.1"));
  ASSERT_TRUE(server);
  const Status alone = join_at(fmt::format("tcp://{}/job", text((*server)->address())), 5s);
  EXPECT_EQ(alone.code, ErrorCode::timeout) << alone.message;
  EXPECT_THAT(alone.message, HasSubstr("rank 1"));
  expect_error(join_at("smoke://signals", 1s), ErrorCode::invalid_argument, {"smoke://signals", "tcp://"});
  expect_error(join_at("tcp://127.0.0.1:99999/job", 1s), ErrorCode::invalid_argument, {"99999"});
}

#ifdef GRADSYNC_TOOL
// Runs the tool; its exit code and output.
test::WorkerEnd tool(std::vector<std::string> arguments) {
  test::WorkerPlan plan;
  plan.program = GRADSYNC_TOOL;
  plan.arguments = std::move(arguments);
  plan.deadline = 20s;
  return test::run_workers(plan).workers.at(0);
}

TEST(CaseBadInput, TheToolAnswersUnknownNamesWithTheKnownOnes) {
  const auto refused = [](std::vector<std::string> arguments, const std::vector<std::string>& words) {
    const test::WorkerEnd end = tool(std::move(arguments));
    EXPECT_GT(end.exit_code, 0) << end.output;
    EXPECT_FALSE(end.overdue);
    for (const std::string& word : words) EXPECT_THAT(end.output, HasSubstr(word));
  };
  refused({"bench", "all_reduce", "-n", "2", "--algorithm", "rung"}, {"rung", "ring", "two_shot"});
  refused({"bench", "all_reduce", "-n", "2", "--dtype", "f31"}, {"f31", known_dtypes()});
  refused({"bench", "all_reduce", "-n", "2", "--op", "mean"}, {"mean", known_reduce_ops()});
  refused({"bench", "all_reduce", "-n", "2", "--transport", "pigeon"}, {"pigeon", known_transports()});
  refused({"bench", "all_produce", "-n", "2"}, {"all_produce", known_collectives()});
  refused({"run", "-n", "2", "--transport", "pigeon", "--", "true"}, {"pigeon", known_transports()});
  refused({"show", "rung", "-n", "4"}, {"rung", known_algorithms()});
  refused({"prove", "--algorithm", "rung"}, {"rung", known_algorithms()});
  refused({"run", "-n", "0", "--", "true"}, {"0", std::to_string(limits::launch_ranks_max)});
  refused({"run", "-n", "5000", "--", "true"}, {"5000", std::to_string(limits::launch_ranks_max)});
  refused({"run", "-n", "many", "--", "true"}, {"many"});
  refused({"show", "ring", "-n", "0"}, {"0"});
  refused({"show", "ring", "-n", "4", "--rank", "4"}, {"4"});
  refused({"run", "-n", "2", "--", "/no/such/program"}, {"/no/such/program", "no such file or directory"});
  refused({"run", "-n", "2"}, {"program"});
  refused({"frobnicate"}, {"frobnicate"});
}
#endif

}  // namespace
}  // namespace gradsync::cases
