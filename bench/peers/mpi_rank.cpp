// MPI_Allreduce in place, f32, sum. One source for every MPI, built with each one's own compiler wrapper. Which algorithm
// runs is the library's choice, or set by the launch command, so the way is only a label here.
#include <mpi.h>

#include <cstdlib>

#include "rank.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bench::Contender me;
  const char* name = std::getenv("BENCH_PEER");
  me.name = name != nullptr ? name : "mpi";
  MPI_Comm_rank(MPI_COMM_WORLD, &me.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &me.ranks);
  me.prepare = [](const std::string&, std::size_t count) {
    auto memory = bench::ordinary_memory(count * sizeof(float));
    auto* data = static_cast<float*>(memory.get());
    return bench::Call{memory, data, [data, count] {
                         MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                       }};
  };
  me.settle = [] { MPI_Barrier(MPI_COMM_WORLD); };
  bench::serve(me);
  MPI_Finalize();
}
