// The tests, or one worker of a test that needs processes: "torch_test worker NAME".
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>

#include "worker.hpp"

int main(int argc, char** argv) {
  torch::set_num_threads(1);
  if (argc > 2 && std::strcmp(argv[1], "worker") == 0) return gradsync_test::worker(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
