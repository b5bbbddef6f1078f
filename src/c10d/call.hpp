// The frame of every call: memory is memory, errors say who speaks, the work is kept until it has ended.
#pragma once

#include "c10d/process_group.hpp"

namespace gradsync::pytorch {

template <class Body>
ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::call(const CallName& name, std::chrono::milliseconds timeout,
                                                             const Body& body) {
  const std::shared_ptr<Session> session = this->session();
  Communicator& comm = session->comm();  // which says itself who speaks
  Plan plan;
  plan.call = name;
  plan.began = std::chrono::steady_clock::now();
  plan.timeout = timeout.count() > 0 ? timeout : session->timeout();
  CallOptions options;
  options.timeout = plan.timeout;
  try {
    const AsMemory guard;
    Started started{comm, options, plan, *session};
    body(started);
  } catch (const Error& error) {
    // What has been started before the failure uses memory that must live until it has ended.
    if (!plan.parts.empty()) static_cast<void>(session->keep(std::move(plan)));
    session->note_failure(error.code());
    throw Error(Status{error.code(), error.peer(), session->prefix() + ": " + error.what()});
  }
  if (plan.order == Order::collective) ++calls_;
  return collected(session->keep(std::move(plan)));
}

}  // namespace gradsync::pytorch
