#include "engine/operation.hpp"

#include <cstdlib>

namespace gradsync {
namespace {

std::shared_ptr<std::byte> allocate(std::size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, 64, bytes + 64) != 0) return nullptr;
  return {static_cast<std::byte*>(data), [](std::byte* p) { std::free(p); }};
}

}  // namespace

std::shared_ptr<std::byte> ScratchPool::take(std::size_t bytes) {
  if (kept_ && kept_bytes_ >= bytes && kept_.use_count() == 1) return kept_;
  std::shared_ptr<std::byte> fresh = allocate(bytes);
  constexpr std::size_t kept_bytes_max = 4u << 20;  // larger scratch goes back to the system after use
  if (fresh && bytes <= kept_bytes_max) {
    kept_ = fresh;
    kept_bytes_ = bytes;
  }
  return fresh;
}

Operation::Operation(Request request, std::uint64_t epoch, std::shared_ptr<Completion> completion)
    : request_(std::move(request)),
      epoch_(epoch),
      completion_(std::move(completion)) {
  const Call& call = request_.call;
  work_ = reduces() ? kernels::work_of(call.dtype, call.op) : kernels::same_as(call.dtype);
}

bool Operation::reduces() const {
  const Collective c = request_.call.collective;
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}

// A world of one, where no step may be the last to write, is left to `complete`.
bool Operation::divides_on_the_way() const {
  return reduces() && request_.call.op == ReduceOp::avg && !widens() && request_.call.dtype != DType::boolean &&
         request_.schedule->recipe.world > 1;
}

bool Operation::widens() const { return work_ != kernels::same_as(request_.call.dtype); }

void Operation::bind_source(std::uint32_t rank) {
  auto schedule = std::make_shared<Schedule>(*request_.schedule);
  schedule->recipe.root = rank;
  for (Step& step : schedule->steps) step.peer = rank;
  request_.schedule = std::move(schedule);
}

Status Operation::start(ScratchPool& pool, const CallHistory* history, HostBoard* board) {
  if (request_.took) began_ = std::chrono::steady_clock::now();
  if (request_.settle)
    if (Status status = request_.settle(request_); !status.ok()) return status;
  const Schedule& schedule = *request_.schedule;
  Binding binding;
  binding.shape = schedule.shape;
  binding.work = work_;
  binding.op = request_.call.op;
  binding.element_bytes = kernels::size_of(work_);
  if (divides_on_the_way()) binding.divisor = request_.contributions;
  // The input is never written: no step of a proven schedule does.
  binding.spaces[0] = {const_cast<std::byte*>(static_cast<const std::byte*>(request_.input)), request_.input_layout};
  binding.spaces[1] = {static_cast<std::byte*>(request_.output), request_.output_layout};
  binding.spaces[2] = {nullptr, request_.input_layout};
  const auto memory = [&](Space space, std::shared_ptr<std::byte>& into) {
    const std::uint64_t bytes = binding.elements(space) * binding.element_bytes;
    if (bytes == 0) return true;
    into = pool.take(static_cast<std::size_t>(bytes));
    binding.spaces[static_cast<std::size_t>(space)].data = into.get();
    return into != nullptr;
  };
  bool enough = memory(Space::scratch, scratch_);
  // An all-reduce works in place on its widened copy; where the windows differ, input and output are two copies.
  const bool one_copy = binding.shape.input == binding.shape.output;
  if (widens()) {
    enough = enough && memory(Space::input, wide_input_);
    if (one_copy) binding.spaces[1].data = (wide_output_ = wide_input_).get();
    else enough = enough && memory(Space::output, wide_output_);
  }
  if (!enough) return failure(ErrorCode::out_of_memory, "{}: no memory for scratch", name());
  Aliasing aliasing = Aliasing::none;
  if (widens()) {
    if (one_copy) aliasing = Aliasing::in_place;
    kernels::widen(request_.call.dtype, work_, wide_input_.get(), request_.input,
                   static_cast<std::size_t>(binding.elements(Space::input)));
  } else if (request_.input != nullptr && request_.output != nullptr) {
    const std::uint64_t in_at = request_.input_layout.offset(schedule.shape.input.first) * binding.element_bytes;
    const std::uint64_t out_at = request_.output_layout.offset(schedule.shape.output.first) * binding.element_bytes;
    const auto* in = static_cast<const std::byte*>(request_.input);
    const auto* out = static_cast<const std::byte*>(request_.output);
    if (reinterpret_cast<std::uintptr_t>(in) - in_at == reinterpret_cast<std::uintptr_t>(out) - out_at)
      aliasing = Aliasing::in_place;
  }
  Setup setup{epoch_,  request_.sequence, request_.channel, request_.called(), request_.schedule,
              binding, aliasing,          history};
  if (board && board->state != HostBoard::State::none && BoardRun::takes(setup))
    board_run_.emplace(std::move(setup), *board);
  else execution_.emplace(std::move(setup));
  return {};
}

Result<bool> Operation::advance(Transport& transport, Counters& counters) {
  Result<bool> moved = movement().advance(transport, counters);
  if (board_run_ && board_run_->declined()) {
    execution_.emplace(board_run_->take_setup());
    board_run_.reset();
  }
  return moved;
}

void Operation::complete() {
  // In a world of one nothing was combined: a boolean becomes 0 or 1 and an average's NaN canonical here. Elsewhere every
  // combine leaves booleans so.
  const bool alone = request_.schedule->recipe.world == 1;
  const bool last_pass =
      alone && reduces() && (request_.call.op == ReduceOp::avg || request_.call.dtype == DType::boolean);
  if ((widens() || last_pass) && request_.output != nullptr) {
    const Window window = request_.schedule->shape.output;
    const std::uint64_t count =
        request_.output_layout.offset(window.first + window.count) - request_.output_layout.offset(window.first);
    const void* from = widens() ? wide_output_.get() : request_.output;
    if (count > 0)
      kernels::finish(request_.call.dtype, request_.call.op, work_, request_.contributions, request_.output, from,
                      static_cast<std::size_t>(count));
  }
  if (request_.took) request_.took(std::chrono::steady_clock::now() - began_);
  const bool received = request_.call.collective == Collective::recv;
  completion_->finish({}, received ? static_cast<int>(request_.schedule->recipe.root) : -1);
}

}  // namespace gradsync
