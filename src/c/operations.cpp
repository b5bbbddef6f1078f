// Every operation for C, blocking and asynchronous.
#include "c/calls.hpp"
#include "c/handles.hpp"
#include "c/numbers.hpp"

using namespace gradsync;
using namespace gradsync::c;

extern "C" {

gradsync_code gradsync_all_reduce(gradsync_comm* comm, const void* input, void* output, size_t count,
                                  gradsync_dtype dtype, gradsync_op op, const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::all_reduce,
              .input = input,
              .output = output,
              .count = count,
              .dtype = dtype,
              .op = op},
             options);
}
gradsync_code gradsync_all_reduce_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                        gradsync_dtype dtype, gradsync_op op, const gradsync_call_options* options,
                                        gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::all_reduce,
                .input = input,
                .output = output,
                .count = count,
                .dtype = dtype,
                .op = op},
               options, work);
}

gradsync_code gradsync_reduce_scatter(gradsync_comm* comm, const void* input, void* output, size_t count,
                                      gradsync_dtype dtype, gradsync_op op, const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::reduce_scatter,
              .input = input,
              .output = output,
              .count = count,
              .dtype = dtype,
              .op = op},
             options);
}
gradsync_code gradsync_reduce_scatter_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                            gradsync_dtype dtype, gradsync_op op, const gradsync_call_options* options,
                                            gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::reduce_scatter,
                .input = input,
                .output = output,
                .count = count,
                .dtype = dtype,
                .op = op},
               options, work);
}

gradsync_code gradsync_reduce_scatter_counts(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                             gradsync_dtype dtype, gradsync_op op,
                                             const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::reduce_scatter,
              .input = input,
              .output = output,
              .uneven = true,
              .counts = counts,
              .dtype = dtype,
              .op = op},
             options);
}
gradsync_code gradsync_reduce_scatter_counts_async(gradsync_comm* comm, const void* input, void* output,
                                                   const size_t* counts, gradsync_dtype dtype, gradsync_op op,
                                                   const gradsync_call_options* options, gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::reduce_scatter,
                .input = input,
                .output = output,
                .uneven = true,
                .counts = counts,
                .dtype = dtype,
                .op = op},
               options, work);
}

gradsync_code gradsync_all_gather(gradsync_comm* comm, const void* input, void* output, size_t count,
                                  gradsync_dtype dtype, const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::all_gather, .input = input, .output = output, .count = count, .dtype = dtype},
             options);
}
gradsync_code gradsync_all_gather_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                        gradsync_dtype dtype, const gradsync_call_options* options,
                                        gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::all_gather, .input = input, .output = output, .count = count, .dtype = dtype},
               options, work);
}

gradsync_code gradsync_all_gather_counts(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                         gradsync_dtype dtype, const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::all_gather,
              .input = input,
              .output = output,
              .uneven = true,
              .counts = counts,
              .dtype = dtype},
             options);
}
gradsync_code gradsync_all_gather_counts_async(gradsync_comm* comm, const void* input, void* output,
                                               const size_t* counts, gradsync_dtype dtype,
                                               const gradsync_call_options* options, gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::all_gather,
                .input = input,
                .output = output,
                .uneven = true,
                .counts = counts,
                .dtype = dtype},
               options, work);
}

gradsync_code gradsync_broadcast(gradsync_comm* comm, void* in_out, size_t count, gradsync_dtype dtype, int root,
                                 const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::broadcast, .output = in_out, .count = count, .dtype = dtype, .root = root},
             options);
}
gradsync_code gradsync_broadcast_async(gradsync_comm* comm, void* in_out, size_t count, gradsync_dtype dtype, int root,
                                       const gradsync_call_options* options, gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::broadcast, .output = in_out, .count = count, .dtype = dtype, .root = root},
               options, work);
}

gradsync_code gradsync_reduce(gradsync_comm* comm, const void* input, void* output, size_t count, gradsync_dtype dtype,
                              gradsync_op op, int root, const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::reduce,
              .input = input,
              .output = output,
              .count = count,
              .dtype = dtype,
              .op = op,
              .root = root},
             options);
}
gradsync_code gradsync_reduce_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                    gradsync_dtype dtype, gradsync_op op, int root,
                                    const gradsync_call_options* options, gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::reduce,
                .input = input,
                .output = output,
                .count = count,
                .dtype = dtype,
                .op = op,
                .root = root},
               options, work);
}

gradsync_code gradsync_gather(gradsync_comm* comm, const void* input, void* output, size_t count, gradsync_dtype dtype,
                              int root, const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::gather,
              .input = input,
              .output = output,
              .count = count,
              .dtype = dtype,
              .root = root},
             options);
}
gradsync_code gradsync_gather_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                    gradsync_dtype dtype, int root, const gradsync_call_options* options,
                                    gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::gather,
                .input = input,
                .output = output,
                .count = count,
                .dtype = dtype,
                .root = root},
               options, work);
}

gradsync_code gradsync_gather_counts(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                     gradsync_dtype dtype, int root, const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::gather,
              .input = input,
              .output = output,
              .uneven = true,
              .counts = counts,
              .dtype = dtype,
              .root = root},
             options);
}
gradsync_code gradsync_gather_counts_async(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                           gradsync_dtype dtype, int root, const gradsync_call_options* options,
                                           gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::gather,
                .input = input,
                .output = output,
                .uneven = true,
                .counts = counts,
                .dtype = dtype,
                .root = root},
               options, work);
}

gradsync_code gradsync_scatter(gradsync_comm* comm, const void* input, void* output, size_t count, gradsync_dtype dtype,
                               int root, const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::scatter,
              .input = input,
              .output = output,
              .count = count,
              .dtype = dtype,
              .root = root},
             options);
}
gradsync_code gradsync_scatter_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                     gradsync_dtype dtype, int root, const gradsync_call_options* options,
                                     gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::scatter,
                .input = input,
                .output = output,
                .count = count,
                .dtype = dtype,
                .root = root},
               options, work);
}

gradsync_code gradsync_scatter_counts(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                      gradsync_dtype dtype, int root, const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::scatter,
              .input = input,
              .output = output,
              .uneven = true,
              .counts = counts,
              .dtype = dtype,
              .root = root},
             options);
}
gradsync_code gradsync_scatter_counts_async(gradsync_comm* comm, const void* input, void* output, const size_t* counts,
                                            gradsync_dtype dtype, int root, const gradsync_call_options* options,
                                            gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::scatter,
                .input = input,
                .output = output,
                .uneven = true,
                .counts = counts,
                .dtype = dtype,
                .root = root},
               options, work);
}

gradsync_code gradsync_all_to_all(gradsync_comm* comm, const void* input, void* output, size_t count,
                                  gradsync_dtype dtype, const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::all_to_all, .input = input, .output = output, .count = count, .dtype = dtype},
             options);
}
gradsync_code gradsync_all_to_all_async(gradsync_comm* comm, const void* input, void* output, size_t count,
                                        gradsync_dtype dtype, const gradsync_call_options* options,
                                        gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::all_to_all, .input = input, .output = output, .count = count, .dtype = dtype},
               options, work);
}

gradsync_code gradsync_all_to_all_counts(gradsync_comm* comm, const void* input, void* output,
                                         const size_t* send_counts, const size_t* recv_counts, gradsync_dtype dtype,
                                         const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::all_to_all,
              .input = input,
              .output = output,
              .uneven = true,
              .counts = send_counts,
              .recv_counts = recv_counts,
              .dtype = dtype},
             options);
}
gradsync_code gradsync_all_to_all_counts_async(gradsync_comm* comm, const void* input, void* output,
                                               const size_t* send_counts, const size_t* recv_counts,
                                               gradsync_dtype dtype, const gradsync_call_options* options,
                                               gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::all_to_all,
                .input = input,
                .output = output,
                .uneven = true,
                .counts = send_counts,
                .recv_counts = recv_counts,
                .dtype = dtype},
               options, work);
}

gradsync_code gradsync_barrier(gradsync_comm* comm, const gradsync_call_options* options) {
  return run(__func__, comm, {.collective = Collective::barrier}, options);
}
gradsync_code gradsync_barrier_async(gradsync_comm* comm, const gradsync_call_options* options, gradsync_work** work) {
  return start(__func__, comm, {.collective = Collective::barrier}, options, work);
}

gradsync_code gradsync_send(gradsync_comm* comm, const void* input, size_t count, gradsync_dtype dtype, int to,
                            const gradsync_call_options* options) {
  return run(__func__, comm,
             {.collective = Collective::send, .input = input, .count = count, .dtype = dtype, .root = to}, options);
}
gradsync_code gradsync_send_async(gradsync_comm* comm, const void* input, size_t count, gradsync_dtype dtype, int to,
                                  const gradsync_call_options* options, gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::send, .input = input, .count = count, .dtype = dtype, .root = to}, options,
               work);
}

gradsync_code gradsync_recv(gradsync_comm* comm, void* output, size_t count, gradsync_dtype dtype, int from,
                            int* source, const gradsync_call_options* options) {
  return guarded(__func__, [&] {
    const auto communicator = behind(comm);
    const CallOptions wanted = call_options_of(options);
    const int found = communicator->recv(View{output, count, dtype_of(dtype)}, from, wanted);
    if (source != nullptr) *source = found;
  });
}
gradsync_code gradsync_recv_async(gradsync_comm* comm, void* output, size_t count, gradsync_dtype dtype, int from,
                                  const gradsync_call_options* options, gradsync_work** work) {
  return start(__func__, comm,
               {.collective = Collective::recv, .output = output, .count = count, .dtype = dtype, .root = from},
               options, work);
}

}  // extern "C"
