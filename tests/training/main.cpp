// The tests, or one worker of a test that needs processes: "training_test worker WHAT" joins as the environment says.
#include <gtest/gtest.h>

#include <cstdio>

#include "gradsync/error.hpp"
#include "worker.hpp"

int main(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[1]) == "worker") {
    try {
      return gradsync::training::worker(argv[2]);
    } catch (const gradsync::Error& error) {
      std::printf("%s\n", error.what());
      return 3;
    }
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
