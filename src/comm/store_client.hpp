// A rank's connection to a store that is served over TCP or an abstract UNIX socket.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "comm/address.hpp"
#include "comm/endpoint.hpp"
#include "comm/store.hpp"
#include "comm/store_protocol.hpp"

namespace gradsync {

// Where a store may be: a TCP address, or a name of an abstract UNIX socket.
struct StoreTarget {
  std::optional<Address> tcp;
  std::string unix_name;
};
std::string text(const StoreTarget& target);

class StoreClient final : public Store, public LossWatch {
 public:
  enum class Answer {
    welcome,
    absent,     // nobody there, or no answer in time: try again
    closed,     // somebody who hung up without a word
    foreign,    // somebody else's service
    other_job,  // a store of another job
    refused,    // our store and job, but this rank may not enter
  };
  struct Attempt {
    Answer answer = Answer::absent;
    std::unique_ptr<StoreClient> client;  // welcome only
    Status status;                        // all but welcome: why
  };
  // Whoever is there has until `patience` to greet as a store does, and then until `deadline` to let us in.
  static Attempt connect(const StoreTarget& target, const StoreIdentity& identity, Deadline patience,
                         Deadline deadline);

  std::uint64_t job() const override { return job_; }
  Result<std::vector<std::string>> gather(const std::string& name, const std::string& blob, Deadline deadline) override;
  Status put(const std::string& name, const std::string& value, Deadline deadline) override;
  Result<std::string> get(const std::string& name, Deadline deadline) override;
  void fail(const std::string& why) override;

  int descriptor() const override { return socket_.get(); }
  bool collect(std::vector<Loss>& out) override;
  void say_goodbye() override;

 private:
  using Reply = store_protocol::Reply;
  using Cut = store_protocol::Cut;
  StoreClient(Descriptor socket, const StoreIdentity& identity);
  Status open(Deadline patience, Deadline deadline, Attempt& attempt);
  Status hear_greeting(Deadline deadline, Attempt& attempt);
  Status hear_welcome(Deadline deadline, Attempt& attempt);
  Status request(store_protocol::Request type, const std::string& body, Deadline deadline);
  // The next frame of either type; others before it: gone fails, the rest is dropped.
  Result<Cut> wait_for(Reply type, Reply or_type, Deadline deadline);
  Result<Cut> next_frame(Deadline deadline);
  Status missing(const Cut& answer) const;
  std::size_t frame_bytes_max() const;

  Descriptor socket_;
  StoreIdentity identity_;
  std::uint64_t job_ = 0;
  std::string buffer_;
};

}  // namespace gradsync
