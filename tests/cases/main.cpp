// The cases, or one worker of a case that needs processes: "cases_test worker" joins as the environment says and adds up.
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "world.hpp"

namespace gradsync::cases {
namespace {

int worker() {
  try {
    Communicator comm = Communicator::create();
    std::vector<std::int32_t> x(3000, comm.rank() + 1);
    comm.all_reduce(view(x), ReduceOp::sum);
    comm.barrier();
    const bool right = x.back() == comm.size() * (comm.size() + 1) / 2;
    std::printf("%s: %s, on host number %u\n", comm.describe(comm.rank()).c_str(), right ? "right" : "wrong",
                comm.hosts()[static_cast<std::size_t>(comm.rank())]);
    return right ? 0 : 1;
  } catch (const Error& error) {
    std::printf("%s: %s\n", std::string(gradsync::name_of(error.code())).c_str(), error.what());
    return 3;
  }
}

}  // namespace
}  // namespace gradsync::cases

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "worker") return gradsync::cases::worker();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
