// What ranks need to find each other: a place to exchange small values once, at the start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"

namespace gradsync {

// Who asks. `process` tells a second worker of the same rank from the same worker that joins again.
struct StoreIdentity {
  std::string job;
  std::uint32_t rank = 0, size = 0;
  std::uint64_t process = 0;   // process_identity()
  std::string agreement = {};  // Options::agreement
};

class Store {
 public:
  virtual ~Store() = default;
  // Random number of this meeting, equal on all its ranks and on no other meeting.
  virtual std::uint64_t job() const = 0;
  // Every rank brings one blob under the name and gets the blobs of all, by rank. One request. A timeout says who is
  // missing, peer_lost who left. Names are used once.
  virtual Result<std::vector<std::string>> gather(const std::string& name, const std::string& blob,
                                                  Deadline deadline) = 0;
  // Values outside gathers. `get` waits until somebody has put it.
  virtual Status put(const std::string& name, const std::string& value, Deadline deadline) = 0;
  virtual Result<std::string> get(const std::string& name, Deadline deadline) = 0;
  // After the last gather: returns when what this rank does next cannot disturb those that still read, and leaves nothing
  // behind that the store need not keep.
  virtual Status settle(Deadline) { return {}; }
  // This rank gives up: the others that wait hear why.
  virtual void fail(const std::string& why) = 0;
};

// A hash of boot, process namespace, process id and its start: equal for all calls of one process and no other's.
std::uint64_t process_identity();
std::uint64_t process_identity(int process_id);  // 0 if there is none
// The identity of the nearest ancestor process of that name (as in /proc/PID/comm), 0 if there is none.
std::uint64_t ancestor_identity(const std::string& name);
// Hash of the kernel's boot id, 0 if unknown; inode of the network namespace.
std::uint64_t boot_identity();
std::uint64_t network_identity();

// "3 of 4 ranks arrived; missing rank 2"; lists at most 8.
std::string arrival_text(const std::vector<bool>& arrived);

}  // namespace gradsync
