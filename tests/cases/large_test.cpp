// V3: messages whose elements or bytes need more than 31 bits. Real memory only lies around the positions that are looked at; everywhere
// else one stretch of a file is mapped again and again, where ranks and positions overwrite each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/descriptor.hpp"
#include "values.hpp"
#include "world.hpp"

namespace gradsync::cases {
namespace {

constexpr std::size_t kWindow = 64u << 10, kShared = 2u << 20;
constexpr std::size_t k2To31 = std::size_t{1} << 31;

class Huge {
 public:
  // `real`: bytes around which a window has memory of its own.
  Huge(std::size_t bytes, const std::vector<std::size_t>& real) : bytes_((bytes + kShared - 1) / kShared * kShared) {
    file_.reset(::memfd_create("cases", MFD_CLOEXEC));
    if (!file_ || ::ftruncate(file_.get(), kShared) != 0) throw std::runtime_error("no memfd");
    base_ = map(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    for (std::size_t at = 0; at < bytes_; at += kShared)
      map(base_ + at, kShared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_.get());
    for (std::size_t at : real)
      for (std::size_t window : {at / kWindow, (at + 8) / kWindow})
        map(base_ + window * kWindow, kWindow, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
  }
  ~Huge() { ::munmap(base_, bytes_); }
  Huge(const Huge&) = delete;
  Huge& operator=(const Huge&) = delete;
  std::byte* data() { return base_; }

 private:
  static std::byte* map(std::byte* at, std::size_t bytes, int protection, int flags, int fd) {
    void* mapped = ::mmap(at, bytes, protection, flags, fd, 0);
    if (mapped == MAP_FAILED) throw std::runtime_error("no mapping");
    return static_cast<std::byte*>(mapped);
  }
  std::size_t bytes_;
  Descriptor file_;
  std::byte* base_ = nullptr;
};

constexpr std::chrono::seconds kPatience{60};  // gigabytes through a loaded machine
double value(int rank, std::size_t i) { return static_cast<double>((i % 11) + 1 + 3 * static_cast<std::size_t>(rank)); }

// Sums `count` elements in place and looks at `positions`.
void expect_sums(const World& world, DType dtype, std::size_t count, const std::vector<std::size_t>& positions,
                 Algorithm algorithm) {
  in_world(world, [&](Communicator& comm) {
    std::vector<std::size_t> bytes;
    for (std::size_t i : positions) bytes.push_back(i * size_of(dtype));
    Huge data(count * size_of(dtype), bytes);
    for (std::size_t i : positions) put(dtype, data.data(), i, value(comm.rank(), i));
    comm.all_reduce(View{data.data(), count, dtype}, ReduceOp::sum, {.algorithm = algorithm});
    for (std::size_t i : positions) {
      double sum = 0;
      for (int r = 0; r < comm.size(); ++r) sum += value(r, i);
      EXPECT_EQ(get(dtype, data.data(), i), sum) << "element " << i;
    }
    EXPECT_LT(comm.counters().staging_bytes_peak, std::size_t{1} << 30);
  });
}

TEST(CaseV3, MoreThanTwoToThe31ElementsOfBytes) {
  const std::size_t count = k2To31 + 4099;
  const std::vector<std::size_t> positions = {0, 1, count / 2 - 1, count / 2, k2To31 - 1, k2To31, count - 1};
  expect_sums({.size = 2, .medium = Medium::shm, .timeout = kPatience}, DType::i8, count, positions, Algorithm::ring);
}

TEST(CaseV3, MoreThanTwoGibibytesOfF32) {
  const std::size_t count = (k2To31 + 8192) / 4 + 1, at = k2To31 / 4;
  const std::vector<std::size_t> positions = {0, count / 2 - 1, count / 2, at - 1, at, count - 1};
  expect_sums({.size = 2, .medium = Medium::tcp, .timeout = kPatience}, DType::f32, count, positions,
              Algorithm::automatic);
}

TEST(CaseV3, AnAllGatherWhoseSumCrossesTwoToThe31) {
  const std::size_t block = k2To31 / 3 + 4099, count = 3 * block;
  const std::vector<std::size_t> positions = {0,         block - 1,  block,  2 * block - 1,
                                              2 * block, k2To31 - 1, k2To31, count - 1};
  in_world({.size = 3, .timeout = kPatience}, [&](Communicator& comm) {
    Huge data(count, positions);
    const std::size_t first = static_cast<std::size_t>(comm.rank()) * block;
    for (std::size_t i : positions)
      if (i >= first && i < first + block) put(DType::u8, data.data(), i, value(comm.rank(), i));
    comm.all_gather(ConstView(data.data() + first, block, DType::u8), View{data.data(), count, DType::u8});
    for (std::size_t i : positions)
      EXPECT_EQ(get(DType::u8, data.data(), i), value(static_cast<int>(i / block), i)) << "element " << i;
  });
}

TEST(CaseV3, MoreMemoryThanThereIsIsAnErrorThatNamesTheBytes) {
  in_world({.size = 2}, [](Communicator& comm) {
    for (std::size_t bytes : {std::size_t{1} << 45, (std::size_t{1} << 46) + 1, std::size_t{1} << 62}) try {
        comm.allocate(bytes);
        ADD_FAILURE() << bytes;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
        EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(bytes)));
      }
    comm.barrier();
  });
}

}  // namespace
}  // namespace gradsync::cases
