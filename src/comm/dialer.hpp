// Opens streams to the endpoints of a group's members.
#pragma once

#include <memory>

#include "comm/endpoint.hpp"
#include "comm/membership.hpp"
#include "transport/inbox.hpp"

namespace gradsync {

class EndpointDialer final : public Dialer {
 public:
  EndpointDialer(std::shared_ptr<Endpoint> endpoint, std::shared_ptr<const Membership> membership, std::uint64_t epoch)
      : endpoint_(std::move(endpoint)),
        membership_(std::move(membership)),
        epoch_(epoch) {}

  // shm: connected, with handshake and memory sent. tcp: the connection is under way and the greeting is to be written.
  Result<Line> dial(const Call& call) override;
  std::string describe(std::uint32_t rank) const override;  // "host b (192.0.2.7:4711)"

 private:
  std::shared_ptr<Endpoint> endpoint_;  // our own must live, or the peers see us as gone
  std::shared_ptr<const Membership> membership_;
  std::uint64_t epoch_;
};

}  // namespace gradsync
