// Ranks as processes: the site whose streams go through an endpoint.
#pragma once

#include <memory>

#include "comm/site.hpp"
#include "gradsync/options.hpp"

namespace gradsync {

struct Processes {
  std::shared_ptr<Site> site;
  std::uint32_t rank = 0, size = 0;
  std::uint64_t epoch = 0;  // of the communicator that holds them all
};

// Joins the job that the options describe; returns when all ranks are there, by the start timeout at the latest.
Result<Processes> join_processes(const Options& options);

}  // namespace gradsync
