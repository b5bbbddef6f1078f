// Where other processes reach this one: a TCP and an abstract UNIX listener with a thread that takes handshakes.
//
// The thread accepts, reads a bounded handshake and hands the socket to the communicator it names. Whoever says anything
// else (port scans, HTTP, noise, another job) is dropped and counted; nobody can hold more than
// limits::handshakes_pending_max sockets for more than limits::handshake_timeout.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "comm/mailbox.hpp"
#include "comm/membership.hpp"

namespace gradsync {

// Tells the endpoint which ranks died; see StoreClient.
class LossWatch {
 public:
  virtual ~LossWatch() = default;
  struct Loss {
    std::uint32_t rank = 0;
    std::string why;
  };
  virtual int descriptor() const = 0;
  // Appends the losses that have become known; false when no more will come.
  virtual bool collect(std::vector<Loss>& out) = 0;
  // This process leaves in order: nobody is told that it was lost. Called once, before the end.
  virtual void say_goodbye() = 0;
};

class Endpoint {
 public:
  // Listens on `address` (port 0) and on an abstract UNIX socket. `job` may be set later; until then nobody gets in.
  static Result<std::shared_ptr<Endpoint>> start(const Address& address);
  ~Endpoint();  // says goodbye, closes everything; joins the thread. Fork-safe: a child only closes its copies
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  const Address& address() const { return address_; }
  const std::string& unix_name() const { return unix_name_; }
  void set_job(std::uint64_t job);

  // The letter box of rank `rank` of the communicator `epoch`, whose rank i is world rank `world_ranks[i]`. Epochs are
  // never used twice. What arrived before is delivered at once.
  std::unique_ptr<Mailbox> subscribe(std::uint64_t epoch, std::uint32_t rank, std::vector<std::uint32_t> world_ranks);

  // From now on the watch's losses become notices. The endpoint owns it.
  void watch(std::unique_ptr<LossWatch> watch);
  // Keeps a resource (a store that this rank hosts) for as long as the endpoint lives.
  void keep(std::shared_ptr<void> resource) { kept_.push_back(std::move(resource)); }

  std::uint64_t strangers() const { return strangers_->load(); }  // connections dropped, since the start
  std::size_t parked() const { return room_->parked(); }

  class Acceptor;  // the thread's own

 private:
  Endpoint() = default;
  Address address_;
  std::string unix_name_;
  std::shared_ptr<MailRoom> room_;
  std::shared_ptr<std::atomic<std::uint64_t>> strangers_;
  std::vector<std::shared_ptr<void>> kept_;
  std::shared_ptr<Acceptor> acceptor_;
  std::unique_ptr<std::thread> thread_;
  int owner_ = 0;  // process id
};

}  // namespace gradsync
