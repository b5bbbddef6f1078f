// A store with a thread that serves it, for one launcher or for rank 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "comm/address.hpp"

namespace gradsync {

class StoreServer {
 public:
  // `job`: the only job that is served, all others are turned away; empty: any.
  static Result<std::unique_ptr<StoreServer>> start(const Address& address, std::string job = {});  // port 0: chosen
  static Result<std::unique_ptr<StoreServer>> start_abstract(const std::string& name, std::string job = {});
  ~StoreServer();  // sends what is owed (bounded), closes, joins. Fork-safe
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  const Address& address() const { return address_; }  // with the port that was bound
  const std::string& name() const { return name_; }    // of an abstract one
  std::uint64_t strangers() const { return strangers_->load(); }

  class Loop;

 private:
  StoreServer() = default;
  static Result<std::unique_ptr<StoreServer>> serve(Descriptor listener, bool local, std::string job);
  Address address_;
  std::string name_;
  std::shared_ptr<std::atomic<std::uint64_t>> strangers_;
  std::shared_ptr<Loop> loop_;
  std::unique_ptr<std::thread> thread_;
  int owner_ = 0;
};

}  // namespace gradsync
