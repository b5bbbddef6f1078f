#include "comm/processes.hpp"

#include "base/random.hpp"
#include "comm/dialer.hpp"
#include "comm/endpoint.hpp"
#include "comm/notice.hpp"
#include "comm/rendezvous.hpp"
#include "transport/fault.hpp"
#include "transport/router.hpp"

namespace gradsync {
namespace {

class MailNotifier final : public Notifier {
 public:
  MailNotifier(std::shared_ptr<Mailbox> mailbox, std::shared_ptr<const Membership> members, std::uint64_t epoch)
      : mailbox_(std::move(mailbox)),
        members_(std::move(members)),
        epoch_(epoch) {}

  bool take(Notice& out) override { return mailbox_->take_notice(out); }
  int descriptor() const override { return mailbox_->descriptor(); }
  void tell(std::span<const std::uint32_t> ranks, const Status& verdict, Deadline deadline) override {
    send_notices(*members_, epoch_, members_->rank, ranks, verdict, deadline);
  }

 private:
  std::shared_ptr<Mailbox> mailbox_;
  std::shared_ptr<const Membership> members_;
  std::uint64_t epoch_;
};

class ProcessSite final : public Site {
 public:
  ProcessSite(Joined joined, const Options& options)
      : endpoint_(std::move(joined.endpoint)),
        membership_(std::move(joined.membership)),
        options_(options) {
    options_.store.reset();  // the caller's, for the meeting only
  }

  Result<Line> open(std::uint64_t epoch, const std::vector<std::uint32_t>& members, std::uint32_t me) override {
    auto group = std::make_shared<const Membership>(subset(membership_, members, me));
    std::shared_ptr<Mailbox> mailbox = endpoint_->subscribe(epoch, me, members);
    TransportConfig config;
    config.rank = me;
    config.size = group->size;
    config.hosts = group->hosts;
    config.kind = options_.transport;
    config.lanes = options_.lanes;
    config.pages = shared_pages();
    Result<std::unique_ptr<Transport>> transport =
        open_transport(config, std::make_shared<EndpointDialer>(endpoint_, group, epoch), mailbox);
    if (!transport) return transport.status();
    return Line{with_faults(*std::move(transport), mix64(epoch + me)),
                std::make_unique<MailNotifier>(mailbox, group, epoch)};
  }
  const std::vector<std::uint32_t>& hosts() const override { return membership_.hosts; }
  std::string describe(std::uint32_t job_rank) const override { return gradsync::describe(membership_, job_rank); }
  TransportKind kind() const override {
    if (options_.transport != TransportKind::automatic) return options_.transport;
    for (std::uint32_t host : membership_.hosts)
      if (host != 0) return TransportKind::tcp;
    return TransportKind::shm;
  }
  const Membership& membership() const { return membership_; }

 private:
  // Options::fault_seed: bytes come late and in small pieces, but come.
  std::unique_ptr<Transport> with_faults(std::unique_ptr<Transport> transport, std::uint64_t salt) const {
    if (options_.fault_seed == 0) return transport;
    FaultPlan plan;
    plan.seed = mix64(options_.fault_seed) ^ salt;
    plan.delay_probability = 0.02;
    plan.delay_max = std::chrono::milliseconds(2);
    plan.max_piece = 20000;
    return fault_transport(std::move(transport), plan, std::make_shared<SteadyClock>());
  }

  std::shared_ptr<Endpoint> endpoint_;
  Membership membership_;
  Options options_;
};

}  // namespace

Result<Processes> join_processes(const Options& options) {
  Result<Joined> joined = join(options);
  if (!joined) return joined.status();
  auto site = std::make_shared<ProcessSite>(*std::move(joined), options);
  const Membership& all = site->membership();
  return Processes{site, all.rank, all.size, all.job};
}

}  // namespace gradsync
