// The wire protocol of the first Process Management Interface (MPICH's Hydra): lines of "cmd=… key=value …" on a socket
// that the launcher has opened. Used to tell all ranks where rank 0's store is.
#pragma once

#include <map>
#include <string>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "base/status.hpp"

namespace gradsync {

class PmiClient {
 public:
  // On a descriptor that the launcher passed on (PMI_FD). It stays open and is not ours to close.
  static PmiClient borrow(int descriptor) { return PmiClient(descriptor); }
  // PMI_PORT: a connection of our own to the launcher, introduced with our number PMI_ID.
  static Result<PmiClient> connect(const std::string& host, std::uint16_t port, const std::string& id,
                                   Deadline deadline);

  Status start(Deadline deadline);  // asks for the name of the job's key space
  Status put(const std::string& key, const std::string& value, Deadline deadline);
  // Nothing found: an empty text.
  Result<std::string> get(const std::string& key, Deadline deadline);
  Status barrier(Deadline deadline);
  Status finish(Deadline deadline);  // after this the launcher closes its end
  const std::string& space() const { return space_; }

 private:
  explicit PmiClient(int descriptor) : descriptor_(descriptor) {}
  using Fields = std::map<std::string, std::string>;
  Result<Fields> ask(const std::string& line, const std::string& answer, Deadline deadline);
  int descriptor_ = -1;
  Descriptor owned_;
  std::string space_;
};

// The fields of one line: "cmd=get_result rc=0 value=…" (a value reaches to the next blank).
std::map<std::string, std::string> parse_pmi_line(const std::string& line);

}  // namespace gradsync
