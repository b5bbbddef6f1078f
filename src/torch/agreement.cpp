#include "torch/agreement.hpp"

#include <c10/util/Exception.h>

#include <array>

#include "base/status.hpp"

namespace gradsync::torch {
namespace {

Status share(Communicator& comm, int root, const Status& mine) {
  std::array<std::int64_t, 3> head = {static_cast<std::int64_t>(mine.code), mine.peer,
                                      static_cast<std::int64_t>(mine.message.size())};
  comm.broadcast(view(head), root);
  std::string message = mine.message;
  message.resize(static_cast<std::size_t>(head[2]));
  comm.broadcast(View{message.data(), message.size(), DType::u8}, root);
  return {static_cast<ErrorCode>(head[0]), static_cast<int>(head[1]), std::move(message)};
}

}  // namespace

void agree(Communicator& comm, const Status& mine) {
  std::array<std::int32_t, 1> first = {mine.ok() ? comm.size() : comm.rank()};
  comm.all_reduce(view(first), ReduceOp::min);
  if (first[0] == comm.size()) return;
  throw_if_failed(share(comm, first[0], mine));
}

Status status_of(const std::function<void()>& body, ErrorCode otherwise, const char* what) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return error.status();
  } catch (const c10::Error& error) {  // its what() holds a stack trace
    return failure(otherwise, "{}: {}", what, error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return failure(ErrorCode::out_of_memory, "{}: out of memory", what);
  } catch (const std::exception& error) { return failure(otherwise, "{}: {}", what, error.what()); }
}

}  // namespace gradsync::torch
