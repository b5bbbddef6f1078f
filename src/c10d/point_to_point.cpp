// Sends and receives.
#include <fmt/format.h>

#include "c10d/call.hpp"

namespace gradsync::pytorch {
namespace {

using ::c10d::OpType;

constexpr CallName kSend{OpType::SEND, "send", "gradsync:send"};
constexpr CallName kRecv{OpType::RECV, "recv", "gradsync:recv"};
constexpr CallName kRecvAnySource{OpType::RECVANYSOURCE, "recv from any rank", "gradsync:recvAnySource"};

void set_tag(const char* name, int tag, CallOptions& options) {
  if (tag < 0)
    throw Error(Status{ErrorCode::invalid_argument, -1, fmt::format("{}: tag {}, expected 0 or above", name, tag)});
  options.tag = static_cast<std::uint32_t>(tag);
}

void begin_receive(const CallName& name, const at::Tensor& tensor, int from, Communicator& comm,
                   const CallOptions& options, GroupWork::Plan& plan) {
  check_writable(name.name, tensor);
  const Elements elements = elements_to_move(name.name, tensor.scalar_type());
  const at::Tensor memory = writable(tensor, plan.copies, false);
  plan.order = Order::point_to_point;
  plan.shown = {tensor};
  plan.outputs = {{tensor}};
  plan.used = {tensor, memory};
  plan.parts.push_back(comm.recv_async(view_of(memory, elements), from, options));
}

}  // namespace

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::send(Tensors& tensors, int to, int tag) {
  return call(kSend, ::c10d::kUnsetTimeout, [&](Started& on) {
    const at::Tensor& tensor = only(kSend.name, "input", tensors);
    check_peer(kSend.name, to);
    set_tag(kSend.name, tag, on.options);
    check_dense(kSend.name, tensor);
    const Elements elements = elements_to_move(kSend.name, tensor.scalar_type());
    const at::Tensor memory = readable(tensor);
    on.plan.order = Order::point_to_point;
    on.plan.shown = {tensor};
    on.plan.outputs = {{tensor}};
    on.plan.used = {tensor, memory};
    on.plan.parts.push_back(on.comm.send_async(view_of(memory, elements), to, on.options));
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::recv(Tensors& tensors, int from, int tag) {
  return call(kRecv, ::c10d::kUnsetTimeout, [&](Started& on) {
    check_peer(kRecv.name, from);
    set_tag(kRecv.name, tag, on.options);
    begin_receive(kRecv, only(kRecv.name, "output", tensors), from, on.comm, on.options, on.plan);
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::recvAnysource(Tensors& tensors, int tag) {
  return call(kRecvAnySource, ::c10d::kUnsetTimeout, [&](Started& on) {
    set_tag(kRecvAnySource.name, tag, on.options);
    begin_receive(kRecvAnySource, only(kRecvAnySource.name, "output", tensors), any_rank, on.comm, on.options, on.plan);
  });
}

}  // namespace gradsync::pytorch
