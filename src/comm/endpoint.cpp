#include "comm/endpoint.hpp"

#include <unistd.h>

#include "base/thread.hpp"
#include "comm/acceptor.hpp"
#include "comm/sockets.hpp"

namespace gradsync {

Result<std::shared_ptr<Endpoint>> Endpoint::start(const Address& address) {
  auto tcp = listen_tcp(address.with_port(0));
  if (!tcp) return tcp.status();
  auto local = listen_abstract(fmt::format("gradsync-{:016x}", random_number()));
  if (!local) return local.status();
  std::shared_ptr<Endpoint> endpoint(new Endpoint);
  endpoint->address_ = local_address(tcp->get());
  endpoint->unix_name_ = local_abstract_name(local->get());
  endpoint->room_ = std::make_shared<MailRoom>();
  endpoint->strangers_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  endpoint->owner_ = ::getpid();
  auto acceptor = Acceptor::create(std::move(*tcp), std::move(*local), endpoint->room_, endpoint->strangers_);
  if (!acceptor) return acceptor.status();
  endpoint->acceptor_ = std::move(*acceptor);
  try {
    endpoint->thread_ =
        std::make_unique<std::thread>(start_without_signals([serving = endpoint->acceptor_] { serving->serve(); }));
  } catch (const std::system_error& error) {
    return failure(ErrorCode::unavailable, "cannot start the endpoint's thread: {}", error.what());
  }
  return endpoint;
}

Endpoint::~Endpoint() {
  if (::getpid() != owner_) {  // a forked child: the thread does not exist here, and the goodbye is not ours to say
    [[maybe_unused]] auto* leaked = thread_.release();
    acceptor_->abandon();
    return;
  }
  if (!thread_) return;
  acceptor_->stop();
  thread_->join();
}

void Endpoint::set_job(std::uint64_t job) { acceptor_->set_job(job); }

std::unique_ptr<Mailbox> Endpoint::subscribe(std::uint64_t epoch, std::uint32_t rank,
                                             std::vector<std::uint32_t> world_ranks) {
  return std::make_unique<Mailbox>(room_, MailRoom::Key{epoch, rank}, std::move(world_ranks));
}

void Endpoint::watch(std::unique_ptr<LossWatch> watch) { acceptor_->watch(std::move(watch)); }

}  // namespace gradsync
