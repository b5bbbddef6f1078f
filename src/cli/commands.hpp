// What each command of the tool takes, as plain values with their defaults, and the functions that do it. All return the
// exit code and write their own errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "cli/environment.hpp"

namespace gradsync::cli {

struct RunArguments {
  std::int64_t workers = -1;  // -1: the slots of the host file
  std::vector<std::string> command;
  std::string host_file;
  std::int64_t host_index = -1;  // which entry of it this host is; -1: found out
  std::int64_t port = 29400;     // of the store, with a host file
  double timeout_s = 0;          // 0: none
  bool prefix = true;
  WorkerSettings settings;
};
int run_command(const RunArguments& arguments);

struct ShowArguments {
  std::string algorithm, collective = "all_reduce";
  std::int64_t ranks = 8, rank = -1, root = 0, segments = 1;  // rank -1: all
  std::string hosts;                                          // "4,4"
  std::string shards;                                         // "0,1,1,1"
  std::int64_t elements = -1;                                 // of the message, to show the chunks' sizes; -1: do not
  std::string svg;                                            // file, "-" is standard output
};
int show_command(const ShowArguments& arguments);

struct ProveArguments {
  std::string ranks = "1-64", algorithm, collective;  // empty: all
  std::int64_t threads = 2;
  bool json = false, markdown = false;
};
int prove_command(const ProveArguments& arguments);

struct BenchArguments {
  std::string collective;
  std::int64_t ranks = 2;
  bool ranks_given = false;
  std::string bytes = "4,1K,1M,25M", dtype = "f32", op = "sum", algorithm = "auto", transport = "auto";
  std::int64_t iterations = 0;  // 0: chosen by size
  double timeout_s = 600;
  bool in_place = false, registered = false, json = false, tune = false, explain = false;
  std::string shards;         // "0,1,1,1"
  std::int64_t segments = 0;  // 0: chosen
};
int bench_command(const BenchArguments& arguments);  // starts workers, unless it is one
int bench_worker(const BenchArguments& arguments);   // is one of them

int completion_command(const std::string& shell);

// Prints "gradsync COMMAND: message" to standard error and returns the code.
int complain(const std::string& command, const Status& status, int exit_code);

// The whole tool.
int run_tool(int argument_count, char** arguments);

}  // namespace gradsync::cli
