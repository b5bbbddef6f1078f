// L1: /dev/shm that is tiny, read-only, absent or full, and memory files that may not grow: no SIGBUS, at worst another transport.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

#include "base/descriptor.hpp"
#include "world.hpp"

namespace gradsync::cases {
namespace {

void expect_large_sums(Communicator& comm) {
  Memory memory = comm.allocate(8u << 20);
  const std::span<float> gradients = memory.as<float>();
  std::fill(gradients.begin(), gradients.end(), 1.0f);
  comm.all_reduce(view(gradients), ReduceOp::sum);
  EXPECT_EQ(gradients.front(), static_cast<float>(comm.size()));
  EXPECT_EQ(gradients.back(), static_cast<float>(comm.size()));
}

// Runs `body` in a thread whose /dev/shm is a mount of its own, made with these options; none: it is an empty place.
void with_dev_shm(const char* options, unsigned long flags, const std::function<void()>& body) {
  std::thread([&] {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0) << "needs root";
    ASSERT_EQ(::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    if (options == nullptr) {
      ASSERT_EQ(::mount("/var/empty-of-no-name", "/dev", "tmpfs", 0, "size=64k"), 0);  // no /dev/shm at all
      ASSERT_NE(::access("/dev/shm", F_OK), 0);
    } else {
      ASSERT_EQ(::mount("cases", "/dev/shm", "tmpfs", flags, options), 0);
    }
    body();
  }).join();
}

const World kShm{.size = 3, .medium = Medium::shm, .timeout = std::chrono::seconds(20)};

TEST(CaseL1, ADevShmOf64KilobytesDoesNotMatter) {
  with_dev_shm("size=64k", 0, [] { in_world(kShm, expect_large_sums); });
}
TEST(CaseL1, AReadOnlyDevShmDoesNotMatter) {
  with_dev_shm("size=64k", MS_RDONLY, [] { in_world(kShm, expect_large_sums); });
}
TEST(CaseL1, AnAbsentDevShmDoesNotMatter) {
  with_dev_shm(nullptr, 0, [] { in_world(kShm, expect_large_sums); });
}

TEST(CaseL1, ADevShmFilledAfterTheStartDoesNotMatter) {
  with_dev_shm("size=64k", 0, [] {
    std::vector<Communicator> ranks = open(kShm);
    const Descriptor file(::open("/dev/shm/full", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    const std::vector<char> page(4096, 'x');
    while (::write(file.get(), page.data(), page.size()) > 0) continue;
    ASSERT_EQ(errno, ENOSPC);
    on_ranks(ranks, expect_large_sums);
  });
}

// What is written to stderr while it lives.
class CapturedErrors {
 public:
  CapturedErrors() : before_(::dup(2)) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    read_.reset(ends[0]);
    ::dup2(ends[1], 2);
    ::close(ends[1]);
  }
  ~CapturedErrors() { ::dup2(before_.get(), 2); }
  std::string take() {
    std::string text(1 << 16, '\0');
    const ssize_t got = ::read(read_.get(), text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }

 private:
  Descriptor before_, read_;
};

// Memory files of this process may have at most that many bytes, as if there were no memory for more.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : signal_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit lower = before_;
    lower.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &lower);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, signal_);
  }

 private:
  rlimit before_{};
  sighandler_t signal_;
};

TEST(CaseL1, WithoutMemoryForRingsEachRankUsesTcpAndWarnsOnce) {
  std::string warnings;
  {
    std::vector<Communicator> ranks = open({.size = 3, .medium = Medium::shm, .timeout = std::chrono::seconds(20)});
    CapturedErrors errors;
    const FileLimit limit(4096);
    on_ranks(ranks, [](Communicator& comm) {
      std::vector<float> gradients(1 << 20, 1.0f);
      comm.all_reduce(view(gradients), ReduceOp::sum, {.algorithm = Algorithm::two_shot});
      EXPECT_EQ(gradients.back(), 3.0f);
      try {
        comm.allocate(1 << 20);
        ADD_FAILURE() << "there was no memory";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
        EXPECT_THAT(error.what(), testing::HasSubstr("1048576 bytes"));
      }
    });
    warnings = errors.take();
  }
  for (int rank = 0; rank < 3; ++rank) {
    const std::string line = "gradsync: warning: rank " + std::to_string(rank) + " uses tcp inside the host";
    const std::size_t at = warnings.find(line);
    EXPECT_NE(at, std::string::npos) << warnings;
    EXPECT_EQ(warnings.find(line, at + 1), std::string::npos) << "more than one warning: " << warnings;
  }
}

}  // namespace
}  // namespace gradsync::cases
