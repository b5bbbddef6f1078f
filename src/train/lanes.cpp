#include "train/lanes.hpp"

#include <chrono>
#include <numeric>
#include <thread>

#include "base/clock.hpp"

namespace gradsync {
namespace {

// Longer than a communicator takes from an ended stream to a verdict.
constexpr auto kMomentForCauses = std::chrono::milliseconds(400);
constexpr auto kLookEvery = std::chrono::milliseconds(1);

bool founded(const Status& status) {
  return !status.ok() && status.code != ErrorCode::aborted && status.code != ErrorCode::closed;
}

void abort_quietly(Communicator& comm, const std::string& why) {
  try {
    comm.abort(why);
  } catch (const Error&) {  // it had ended
  }
}

Communicator group_of_all(Communicator& comm) {
  std::vector<int> everyone(static_cast<std::size_t>(comm.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return comm.group(everyone);
}

}  // namespace

Lanes::Lanes(Communicator& comm) : control_(group_of_all(comm)) {}

void Lanes::open(Communicator& comm, std::uint32_t lanes, bool sparse) {
  for (std::uint32_t lane = 0; lane < lanes; ++lane) lanes_.push_back(group_of_all(comm));
  if (sparse) sparse_ = group_of_all(comm);
}

std::vector<Communicator*> Lanes::all() {
  std::vector<Communicator*> all;
  for (Communicator& lane : lanes_) all.push_back(&lane);
  if (control_) all.push_back(&control_);
  if (sparse_) all.push_back(&sparse_);
  return all;
}

Status Lanes::end(const Status& first) {
  Status cause = first;
  const Deadline deadline = Deadline::after(kMomentForCauses);
  while (!founded(cause) && !deadline.passed()) {
    for (Communicator* comm : all())
      if (Status status = comm->status(); founded(status)) cause = std::move(status);
    if (!founded(cause)) std::this_thread::sleep_for(kLookEvery);
  }
  for (Communicator* comm : all()) abort_quietly(*comm, cause.message);
  return cause;
}

void Lanes::destroy() {
  for (Communicator* comm : all()) comm->destroy();
}

}  // namespace gradsync
