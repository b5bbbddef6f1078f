// gradsync beside Gloo's ring over loopback, two processes of this host, turn by turn in one run: medians and their ratio.
//
//   gloo_bench [--rounds R] [BYTES...]     (default 4 1024 1048576 26214400)
//
// Each process has a Gloo context over TCP and two gradsync communicators, over shared memory and over TCP. What is not
// measured sleeps. All-reduce of f32, sum, in place; a round times one batch of each, in turn; every batch's last result is
// compared with the exact sum. Time of a batch: that of the slower process, over its iterations.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gradsync/gradsync.hpp"

namespace {

using gradsync::Communicator;
constexpr int kRanks = 2;

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::shared_ptr<gloo::rendezvous::Context> gloo_context(int rank, const std::string& folder) {
  gloo::rendezvous::FileStore store(folder);
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, kRanks);
  context->connectFullMesh(store, device);
  return context;
}

Communicator join(int rank, const std::string& folder, gradsync::TransportKind transport) {
  gradsync::Options options;
  options.rank = rank;
  options.size = kRanks;
  options.transport = transport;
  options.timeout = std::chrono::seconds(60);
  options.rendezvous = "file://" + folder + "/" + std::string(name_of(transport));
  return Communicator::create(options);
}

struct Contender {
  std::string name;
  std::function<void(float*, std::size_t)> all_reduce;
  std::vector<double> times_us = {};
};

// Microseconds an all-reduce of the batch, the slower process's; negative if a result was wrong.
double batch(Contender& contender, Communicator& control, std::vector<float>& data, int iterations) {
  const float mine = static_cast<float>(control.rank() + 1);
  contender.all_reduce(data.data(), data.size());
  control.barrier();
  const double start = now_us();
  for (int i = 0; i < iterations; ++i) {
    if (i + 1 == iterations || data.size() < 1024) std::fill(data.begin(), data.end(), mine);
    contender.all_reduce(data.data(), data.size());
  }
  double spent = (now_us() - start) / iterations;
  const bool right = std::all_of(data.begin(), data.end(), [](float x) { return x == 3.0f; });
  std::vector<double> both = {spent, right ? 0.0 : 1.0};
  control.all_reduce(gradsync::view(both), gradsync::ReduceOp::max);
  std::fill(data.begin(), data.end(), 0.0f);
  return both[1] > 0 ? -1 : both[0];
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

int measure(int rank, const std::string& folder, const std::vector<std::size_t>& sizes, int rounds) {
  auto context = gloo_context(rank, folder);
  Communicator shm = join(rank, folder, gradsync::TransportKind::shm),
               tcp = join(rank, folder, gradsync::TransportKind::tcp);
  const auto ours = [](Communicator& comm) {
    return [&comm](float* data, std::size_t count) {
      comm.all_reduce(gradsync::View{data, count, gradsync::DType::f32}, gradsync::ReduceOp::sum);
    };
  };
  const auto gloo_ring = [&](float* data, std::size_t count) {
    gloo::AllreduceOptions options(context);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data, count);
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  };
  if (rank == 0)
    std::printf("%10s %12s %12s %12s %10s %10s  (us, median of %d; ratio: times faster than Gloo)\n", "bytes",
                "gloo ring", "shm", "tcp", "shm ratio", "tcp ratio", rounds);
  bool right = true;
  for (std::size_t bytes : sizes) {
    std::vector<Contender> contenders = {{"gloo ring", gloo_ring}, {"shm", ours(shm)}, {"tcp", ours(tcp)}};
    std::vector<float> data(std::max<std::size_t>(1, bytes / 4));
    const int iterations = bytes <= 65536 ? 500 : bytes <= (4u << 20) ? 30 : 3;
    for (int round = -1; round < rounds; ++round)
      for (Contender& contender : contenders) {
        const double us = batch(contender, shm, data, iterations);
        right = right && us >= 0;
        if (round >= 0) contender.times_us.push_back(us);
      }
    const double gloo_us = median(contenders[0].times_us), shm_us = median(contenders[1].times_us),
                 tcp_us = median(contenders[2].times_us);
    if (rank == 0)
      std::printf("%10zu %12.2f %12.2f %12.2f %10.2f %10.2f  %s\n", bytes, gloo_us, shm_us, tcp_us, gloo_us / shm_us,
                  gloo_us / tcp_us, right ? "" : "WRONG");
    std::fflush(stdout);
  }
  shm.barrier();
  return right ? 0 : 1;
}

int guarded(int rank, const std::string& folder, const std::vector<std::size_t>& sizes, int rounds) {
  try {
    return measure(rank, folder, sizes, rounds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::size_t> sizes;
  int rounds = 15;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--rounds" && i + 1 < argc) rounds = std::max(1, std::atoi(argv[++i]));
    else sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  }
  if (sizes.empty()) sizes = {4, 1024, 1u << 20, 25u << 20};
  std::string folder = (std::filesystem::temp_directory_path() / "gloo_bench.XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return 2;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(guarded(1, folder, sizes, rounds));
  const int mine = guarded(0, folder, sizes, rounds);
  int status = 0;
  ::waitpid(child, &status, 0);
  std::filesystem::remove_all(folder);
  return mine != 0 ? mine : WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}
