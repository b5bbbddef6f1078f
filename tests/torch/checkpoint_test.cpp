#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "gradsync/torch/checkpoint.hpp"
#include "ranks.hpp"
#include "torch/checkpoint_file.hpp"

namespace gradsync_test {
namespace {

using gradsync::ErrorCode;
using gradsync::torch::CheckpointCounters;
using gradsync::torch::DistributedDataParallel;
using gradsync::torch::DistributedDataParallelOptions;
using gradsync::torch::load_checkpoint;
using gradsync::torch::save_checkpoint;

// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "gradsync-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST(CheckpointFile, HasTheStandardChecksum) { EXPECT_EQ(gradsync::torch::crc64("123456789"), 0x995dc9bbdf1939fau); }

TEST(CheckpointFile, IsReadAsItWasWritten) {
  const Folder folder;
  for (const auto& payload : {std::string(), std::string("x"), std::string(100000, 'y')}) {
    ASSERT_TRUE(gradsync::torch::write_checkpoint_file(folder.file("a"), payload).ok());
    EXPECT_EQ(*gradsync::torch::read_checkpoint_file(folder.file("a")), payload);
  }
  EXPECT_EQ(folder.files(), 1u);
}

TEST(CheckpointFile, CutShortAnywhereIsFound) {
  const Folder folder;
  ASSERT_TRUE(gradsync::torch::write_checkpoint_file(folder.file("a"), "the payload").ok());
  const std::string whole = bytes_of(folder.file("a"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(folder.file("b"), whole.substr(0, length));
    const auto read = gradsync::torch::read_checkpoint_file(folder.file("b"));
    EXPECT_EQ(read.status().code, ErrorCode::protocol) << length;
    EXPECT_NE(read.status().message.find("is cut short: "), std::string::npos) << read.status().message;
  }
  write(folder.file("b"), whole + "z");
  EXPECT_EQ(gradsync::torch::read_checkpoint_file(folder.file("b")).status().message,
            "checkpoint " + folder.file("b") + " is too long: 12 bytes after the header, expected 11");
}

TEST(CheckpointFile, ADamagedByteIsFoundWhereverItIs) {
  const Folder folder;
  ASSERT_TRUE(gradsync::torch::write_checkpoint_file(folder.file("a"), "the payload").ok());
  const std::string whole = bytes_of(folder.file("a"));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write(folder.file("b"), damaged);
    EXPECT_EQ(gradsync::torch::read_checkpoint_file(folder.file("b")).status().code, ErrorCode::protocol) << at;
  }
}

struct TrainedImpl : torch::nn::Module {
  explicit TrainedImpl(std::int64_t width = 6) {
    in = register_module("in", torch::nn::Linear(4, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
    out = register_module("out", torch::nn::Linear(width, 2));
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& x) { return out(torch::relu(norm(in(x)))).pow(2).mean(); }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

// A run in which all ranks see the same batches: as the mean of 1, 2 or 4 equal numbers is exact, any such number of
// ranks takes the same steps.
struct Training {
  std::shared_ptr<TrainedImpl> net = std::make_shared<TrainedImpl>();
  DistributedDataParallel<TrainedImpl> model;
  torch::optim::Adam optimizer;

  explicit Training(Communicator& comm, gradsync::Overlap overlap = gradsync::Overlap::backward)
      : model(net, comm, options(overlap)),
        optimizer(net->parameters(), torch::optim::AdamOptions(1e-2)) {}
  static DistributedDataParallelOptions options(gradsync::Overlap overlap) {
    DistributedDataParallelOptions all;
    all.sync.overlap = overlap;
    all.sync.overlap_only_if_worth_it = false;
    return all;
  }
  void train(std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t step = begin; step < end; ++step) {
      model.zero_grad();
      model(noise(step, {8, 4})).backward();
      model.step(optimizer);
    }
  }
  std::vector<Tensor> state() {
    model.synchronize();
    std::vector<Tensor> all = parameters_of(*net);
    for (const Tensor& buffer : net->buffers()) all.push_back(buffer.clone());
    return all;
  }
};

void expect_resumed(gradsync::Overlap overlap) {
  const Folder folder;
  std::vector<Tensor> expected;
  on_ranks(2, [&](Communicator& comm) {
    Training run(comm, overlap);
    run.train(0, 5);
    save_checkpoint(folder.file("run"), run.model, run.optimizer, {{{"epoch", 3}, {"step", -5}}});
    run.train(5, 10);
    const auto state = run.state();
    if (comm.rank() == 0) expected = state;
  });
  EXPECT_EQ(folder.files(), 1u);
  for (const std::uint32_t ranks : {1u, 2u, 4u})
    on_ranks(ranks, [&](Communicator& comm) {
      Training run(comm, overlap);
      run.train(50, 52);  // another state, to be replaced
      const CheckpointCounters counters = load_checkpoint(folder.file("run"), run.model, run.optimizer);
      EXPECT_EQ(counters.numbers, (std::map<std::string, std::int64_t>{{"epoch", 3}, {"step", -5}}));
      run.train(5, 10);
      EXPECT_TRUE(same_bits(run.state(), expected)) << ranks << " ranks: " << largest_difference(run.state(), expected);
    });
}

TEST(Checkpoint, ResumesOnAnyNumberOfRanks) { expect_resumed(gradsync::Overlap::backward); }
TEST(Checkpoint, ResumesWithoutABarrier) { expect_resumed(gradsync::Overlap::backward_forward); }

TEST(Checkpoint, SavingTheModuleItselfSeesUpdatesThatWerePutOff) {
  const Folder folder;
  on_ranks(2, [&](Communicator& comm) {
    Training run(comm, gradsync::Overlap::backward_forward);
    run.train(0, 3);
    save_checkpoint(folder.file("run"), *run.net, run.optimizer, {}, comm);
    const auto now = run.state();
    Training other(comm);
    load_checkpoint(folder.file("run"), *other.net, other.optimizer, comm);
    EXPECT_TRUE(same_bits(other.state(), now));
  });
}

// On every rank this error, and nothing has changed.
void expect_refused(const std::string& path, ErrorCode code, const std::string& part) {
  on_ranks(2, [&](Communicator& comm) {
    Training run(comm);
    run.train(0, 2);
    const auto before = run.state();
    const Status status = failure_of([&] { load_checkpoint(path, run.model, run.optimizer); });
    EXPECT_EQ(status.code, code) << status.message;
    EXPECT_NE(status.message.find(part), std::string::npos) << status.message;
    EXPECT_TRUE(same_bits(run.state(), before));
    run.train(2, 3);
    EXPECT_TRUE(same_bits_on_all_ranks(comm, run.state()));
  });
}

template <class Module, class Optimizer>
void save_alone(const std::string& path, Module& net, Optimizer& optimizer) {
  on_ranks(1, [&](Communicator& comm) { save_checkpoint(path, net, optimizer, {}, comm); });
}

TEST(Checkpoint, RefusesWhatIsMissingCutShortOrDamaged) {
  const Folder folder;
  TrainedImpl net;
  torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(1e-2));
  save_alone(folder.file("run"), net, optimizer);
  const std::string whole = bytes_of(folder.file("run"));
  expect_refused(folder.file("none"), ErrorCode::unavailable, ": no such file");
  expect_refused(folder.file(""), ErrorCode::unavailable, "not a regular file");
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{20}, std::size_t{33}, whole.size() / 2, whole.size() - 1}) {
    write(folder.file("cut"), whole.substr(0, length));
    expect_refused(folder.file("cut"), ErrorCode::protocol, "is cut short");
  }
  std::string damaged = whole;
  damaged[whole.size() / 2] ^= 1;
  write(folder.file("damaged"), damaged);
  expect_refused(folder.file("damaged"), ErrorCode::protocol, "is damaged");
  write(folder.file("odd"), "");
  ASSERT_TRUE(gradsync::torch::write_checkpoint_file(folder.file("odd"), "no parts").ok());
  expect_refused(folder.file("odd"), ErrorCode::protocol, "its parts do not add up");
}

TEST(Checkpoint, RefusesAnotherModelAndAnotherOptimizer) {
  const Folder folder;
  TrainedImpl wide(7);
  torch::optim::Adam of_wide(wide.parameters(), torch::optim::AdamOptions(1e-2));
  save_alone(folder.file("wide"), wide, of_wide);
  expect_refused(folder.file("wide"), ErrorCode::mismatch,
                 "number 0 is parameter in.weight (Double [7, 4]), expected parameter in.weight (Double [6, 4])");
  TrainedImpl same;
  torch::optim::SGD sgd(same.parameters(), 0.1);
  save_alone(folder.file("sgd"), same, sgd);
  expect_refused(folder.file("sgd"), ErrorCode::mismatch, "torch::optim::SGD, expected torch::optim::Adam");
  torch::optim::Adam half({same.in->weight}, torch::optim::AdamOptions(1e-2));
  save_alone(folder.file("half"), same, half);
  expect_refused(folder.file("half"), ErrorCode::mismatch, "groups have [1] parameters, expected [6]");
}

TEST(Checkpoint, TellsEveryRankWhereItCannotBeWritten) {
  const Folder folder;
  const auto expect = [&](const std::string& path, const std::string& part) {
    on_ranks(2, [&](Communicator& comm) {
      Training run(comm);
      const Status status = failure_of([&] { save_checkpoint(path, run.model, run.optimizer); });
      EXPECT_EQ(status.code, ErrorCode::unavailable) << status.message;
      EXPECT_NE(status.message.find(path), std::string::npos) << status.message;
      EXPECT_NE(status.message.find(part), std::string::npos) << status.message;
    });
  };
  expect(folder.file("no/such/run"), ": no such file");
  expect("/proc/run", "create checkpoint");
  expect("/dev/full", "not a regular file");
}

// A limit on the size of files stands for a full disk.
TEST(Checkpoint, AFullDiskLeavesTheOldOne) {
  const Folder folder;
  TrainedImpl net;
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  save_alone(folder.file("run"), net, optimizer);
  const std::string before = bytes_of(folder.file("run"));
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{500, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status;
  on_ranks(2, [&](Communicator& comm) {
    const Status mine = failure_of([&] { save_checkpoint(folder.file("run"), net, optimizer, {}, comm); });
    EXPECT_EQ(mine.code, ErrorCode::unavailable);
    if (comm.rank() == 1) status = mine;
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(status.message.find("write checkpoint " + folder.file("run")), std::string::npos) << status.message;
  EXPECT_EQ(bytes_of(folder.file("run")), before);
  EXPECT_EQ(folder.files(), 1u);
}

}  // namespace
}  // namespace gradsync_test
