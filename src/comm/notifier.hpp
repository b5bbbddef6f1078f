// How a communicator tells its peers that it has failed, and hears that they have.
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "comm/notice.hpp"

namespace gradsync {

class Notifier {
 public:
  virtual ~Notifier() = default;
  // Takes the next notice; false if there is none. One thread at a time.
  virtual bool take(Notice& out) = 0;
  // Readable while a notice waits.
  virtual int descriptor() const = 0;
  // Tells these ranks; returns at the deadline at the latest, reached or not. Any thread.
  virtual void tell(std::span<const std::uint32_t> ranks, const Status& verdict, Deadline deadline) = 0;
};

}  // namespace gradsync
