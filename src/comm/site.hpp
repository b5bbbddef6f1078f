// Where a communicator lives: how it reaches its members, whether they are processes or threads of this one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/notifier.hpp"
#include "comm/page_book.hpp"
#include "comm/progress.hpp"
#include "transport/transport.hpp"

namespace gradsync {

// One for each process (or thread rank) of a job; shared by all communicators that descend from its first.
class Site {
 public:
  virtual ~Site() = default;

  struct Line {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Notifier> notifier;
  };
  // Streams and notices among the given ranks of the job, as position `me` of them, under that epoch. No traffic.
  virtual Result<Line> open(std::uint64_t epoch, const std::vector<std::uint32_t>& members, std::uint32_t me) = 0;

  // Host number of every rank of the job.
  virtual const std::vector<std::uint32_t>& hosts() const = 0;
  virtual std::string describe(std::uint32_t job_rank) const = 0;
  // What moves bytes between the hosts (tcp) or where there is only one host (shm, loopback).
  virtual TransportKind kind() const = 0;

  ProgressThread& progress() { return progress_; }
  PageBook& pages() { return *pages_; }

 protected:
  std::shared_ptr<PageBook> shared_pages() const { return pages_; }  // for the transports

 private:
  std::shared_ptr<PageBook> pages_ = std::make_shared<PageBook>();
  ProgressThread progress_;
};

}  // namespace gradsync
