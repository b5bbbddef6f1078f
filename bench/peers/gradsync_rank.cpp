// gradsync's all-reduce in place, f32, sum. A way is MEMORY or MEMORY:ALGORITHM; memory is "registered"
// (Communicator::allocate) or "own" (malloc). Rank, size, rendezvous and options come from the environment, as for any program.
// BENCH_TUNE: measure the links first (Communicator::tune). BENCH_PIN: bind each rank to a core, as launchers of MPI do.
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "gradsync/gradsync.hpp"
#include "rank.hpp"

namespace {

using gradsync::Communicator;

void pin(int rank) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(rank % ::sysconf(_SC_NPROCESSORS_ONLN)), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) bench::die("sched_setaffinity");
}

bench::Call prepare(Communicator& comm, const std::string& way, std::size_t count) {
  const auto colon = way.find(':');
  gradsync::CallOptions how;
  if (colon != std::string::npos) {
    const auto algorithm = gradsync::algorithm_named(way.substr(colon + 1));
    if (!algorithm) std::fprintf(stderr, "no algorithm of that name: %s\n", way.c_str()), std::exit(2);
    how.algorithm = *algorithm;
  }
  bench::Call call;
  if (way.starts_with("own")) {
    call.keep = bench::ordinary_memory(count * sizeof(float));
    call.data = static_cast<float*>(call.keep.get());
  } else {
    auto memory = std::make_shared<gradsync::Memory>(comm.allocate(count * sizeof(float)));
    call.data = reinterpret_cast<float*>(memory->data());
    call.keep = memory;
  }
  const gradsync::View view{call.data, count, gradsync::DType::f32};
  call.all_reduce = [&comm, view, how] { comm.all_reduce(view, gradsync::ReduceOp::sum, how); };
  return call;
}

}  // namespace

int main() try {
  if (std::getenv("BENCH_PIN") != nullptr) pin(bench::number_from_environment("GRADSYNC_RANK"));
  auto comm = Communicator::create();
  bench::Contender me;
  me.name = "gradsync";
  me.rank = comm.rank();
  me.ranks = comm.size();
  if (std::getenv("BENCH_TUNE") != nullptr) comm.tune();
  me.prepare = [&comm](const std::string& way, std::size_t count) { return prepare(comm, way, count); };
  bench::serve(me);
} catch (const gradsync::Error& error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
