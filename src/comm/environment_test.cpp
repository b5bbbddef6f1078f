#include "comm/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace gradsync {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

Options good(const Environment& environment) {
  std::vector<std::string> warnings;
  auto options = options_from(environment, warnings);
  EXPECT_TRUE(options) << options.status().message;
  EXPECT_TRUE(warnings.empty());
  return options ? *options : Options{};
}

std::string error(const Environment& environment) {
  std::vector<std::string> warnings;
  const auto options = options_from(environment, warnings);
  EXPECT_FALSE(options);
  EXPECT_EQ(options.status().code, ErrorCode::invalid_argument);
  return options.status().message;
}

TEST(Environment, OwnVariables) {
  const Options options =
      good({{"GRADSYNC_RANK", "3"},
            {"GRADSYNC_SIZE", "4"},
            {"GRADSYNC_RENDEZVOUS", "tcp://h:1/j"},
            {"GRADSYNC_INTERFACE", "eth0"},
            {"GRADSYNC_OPTIONS", "transport=tcp,timeout=30,start_timeout=0.5,lanes=4,host=a,fault_seed=7"}});
  EXPECT_EQ(options.rank, 3);
  EXPECT_EQ(options.size, 4);
  EXPECT_EQ(options.rendezvous, "tcp://h:1/j");
  EXPECT_EQ(options.interface, "eth0");
  EXPECT_EQ(options.transport, TransportKind::tcp);
  EXPECT_EQ(options.timeout, 30s);
  EXPECT_EQ(options.start_timeout, 500ms);
  EXPECT_EQ(options.lanes, 4u);
  EXPECT_EQ(options.host, "a");
  EXPECT_EQ(options.fault_seed, 7u);
}

TEST(Environment, UnknownVariablesAreReportedOnce) {
  std::vector<std::string> warnings;
  ASSERT_TRUE(options_from({{"GRADSYNC_RNAK", "1"}, {"GRADSYNC_", "x"}, {"OTHER", "1"}}, warnings));
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[1], AllOf(HasSubstr("GRADSYNC_RNAK"), HasSubstr("GRADSYNC_RENDEZVOUS")));
}

TEST(Environment, BadValuesNameVariableValueAndExpectation) {
  const Environment base = {{"GRADSYNC_SIZE", "2"}, {"GRADSYNC_RENDEZVOUS", "file:///x"}, {"GRADSYNC_RANK", "0"}};
  const auto with = [&](const std::string& name, const std::string& value) {
    Environment changed = base;
    changed[name] = value;
    return error(changed);
  };
  EXPECT_EQ(with("GRADSYNC_RANK", "1x"), "GRADSYNC_RANK is \"1x\", expected a whole number from 0");
  EXPECT_EQ(with("GRADSYNC_RANK", "-1"), "GRADSYNC_RANK is \"-1\", expected a whole number from 0");
  EXPECT_EQ(with("GRADSYNC_SIZE", "0"), "GRADSYNC_SIZE is \"0\", expected a whole number from 1 to 1048576");
  EXPECT_EQ(with("GRADSYNC_SIZE", "99999999999999999999"),
            "GRADSYNC_SIZE is \"99999999999999999999\", expected a whole number from 1");
  for (const char* bad : {"carrier", "loopback"})
    EXPECT_EQ(with("GRADSYNC_OPTIONS", fmt::format("transport={}", bad)),
              fmt::format("GRADSYNC_OPTIONS: transport is \"{}\", expected one of auto, shm, tcp (loopback is for "
                          "threads of one process)",
                          bad));
  EXPECT_EQ(
      with("GRADSYNC_OPTIONS", "lane=2"),
      "GRADSYNC_OPTIONS: unknown name \"lane\", known are transport, timeout, start_timeout, lanes, host, fault_seed");
  EXPECT_EQ(with("GRADSYNC_OPTIONS", "lanes=17"), "GRADSYNC_OPTIONS: lanes is \"17\", expected a number from 1 to 16");
  EXPECT_THAT(with("GRADSYNC_OPTIONS", "timeout"), HasSubstr("not name=value"));
  for (const char* bad : {"0", "-1", "nan", "inf", "1e300", "", "5s"})
    EXPECT_THAT(with("GRADSYNC_OPTIONS", fmt::format("timeout={}", bad)), HasSubstr("timeout is \"")) << bad;
}

TEST(Environment, Torchrun) {
  Environment torch = {{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"MASTER_ADDR", "node1"},
                       {"MASTER_PORT", "29500"},
                       {"TORCHELASTIC_RUN_ID", "my run/1"},
                       {"TORCHELASTIC_RESTART_COUNT", "2"}};
  const Options options = good(torch);
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.size, 8);
  EXPECT_EQ(options.rendezvous, "host0://node1:29500/torch-my_run_1-2");
  torch["MASTER_ADDR"] = "fd00::1";
  EXPECT_THAT(good(torch).rendezvous, StartsWith("host0://[fd00::1]:29500/"));
  torch["MASTER_PORT"] = "http";
  EXPECT_THAT(error(torch), HasSubstr("MASTER_PORT is \"http\""));
  torch.erase("MASTER_PORT");
  EXPECT_EQ(error(torch), "WORLD_SIZE is \"8\" but MASTER_PORT is not set");
  torch["MASTER_PORT"] = "29500";
  torch["RANK"] = "8";
  EXPECT_EQ(error(torch), "RANK is \"8\", expected 0 to 7 as WORLD_SIZE is 8");
  torch["WORLD_SIZE"] = "0";
  EXPECT_EQ(error(torch), "WORLD_SIZE is \"0\", expected a whole number from 1 to 1048576");
}

TEST(Environment, HalfOfALaunchersVariablesIsNoWorldOfOne) {
  const Environment rank1of2 = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  const auto with = [](Environment changed, const char* name) { return changed[name] = "29500", changed; };
  const std::vector<std::pair<Environment, std::string>> cases = {
      {rank1of2, "WORLD_SIZE is \"2\" but MASTER_ADDR is not set"},
      {with(rank1of2, "MASTER_PORT"), "WORLD_SIZE is \"2\" but MASTER_ADDR is not set"},
      {with(rank1of2, "MASTER_ADDR"), "WORLD_SIZE is \"2\" but MASTER_PORT is not set"},
      {{{"WORLD_SIZE", "2"}}, "WORLD_SIZE is \"2\" but RANK is not set"},
      {{{"RANK", "1"}}, "RANK is \"1\" but WORLD_SIZE is not set"},
      {{{"WORLD_SIZE", "two"}}, "WORLD_SIZE is \"two\", expected a whole number"},
      {{{"OMPI_COMM_WORLD_SIZE", "2"}}, "OMPI_COMM_WORLD_SIZE is \"2\" but OMPI_COMM_WORLD_RANK is not set"},
      {{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "PMI_SIZE is \"2\" but PMI_FD is not set"},
      {{{"PMI_SIZE", "2"}, {"PMI_PORT", "h:1"}}, "PMI_SIZE is \"2\" but PMI_RANK is not set"},
      {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}, "SLURM_NTASKS is \"2\" but SLURM_JOB_ID is not set"},
      {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}},
       "SLURM_NTASKS is \"2\" but SLURM_STEP_NODELIST is not set"},
  };
  for (const auto& [environment, message] : cases) EXPECT_EQ(error(environment), message);
}

TEST(Environment, AWorldOfOneNeedsNoLauncher) {
  const std::vector<Environment> cases = {{},
                                          {{"WORLD_SIZE", "1"}, {"RANK", "0"}},
                                          {{"RANK", "admiral"}},
                                          {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}},
                                          {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
                                          {{"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}, {"SLURM_NODELIST", "n"}}};
  for (const Environment& environment : cases) {
    const Options options = good(environment);
    EXPECT_EQ(options.rank, -1);
    EXPECT_EQ(options.size, -1);
    EXPECT_EQ(options.rendezvous, "");
  }
}

TEST(Environment, OwnRankAndSizeNeedEachOther) {
  EXPECT_EQ(error({{"GRADSYNC_RANK", "0"}}), "GRADSYNC_SIZE is not set (GRADSYNC_RANK is 0)");
  EXPECT_EQ(error({{"GRADSYNC_SIZE", "2"}}), "GRADSYNC_RANK is not set (GRADSYNC_SIZE is 2)");
  EXPECT_EQ(error({{"GRADSYNC_RANK", "5"}, {"GRADSYNC_SIZE", "2"}}),
            "GRADSYNC_RANK is \"5\", expected 0 to 1 in a world of 2");
  Environment torch = {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "n"}, {"MASTER_PORT", "1"}};
  torch["GRADSYNC_SIZE"] = "4";
  EXPECT_EQ(error(torch), "GRADSYNC_SIZE is \"4\", expected above this worker's rank, 5");
  // A launcher's leftovers do not matter to who has both.
  EXPECT_EQ(good({{"GRADSYNC_RANK", "0"}, {"GRADSYNC_SIZE", "1"}, {"WORLD_SIZE", "2"}}).size, 1);
}

TEST(Environment, OwnVariablesWinOverALauncher) {
  const Options options = good({{"RANK", "5"},
                                {"WORLD_SIZE", "8"},
                                {"MASTER_ADDR", "n"},
                                {"MASTER_PORT", "1"},
                                {"GRADSYNC_RENDEZVOUS", "file:///x"}});
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.rendezvous, "file:///x");
}

TEST(Environment, OpenMpi) {
  Environment mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                     {"PMIX_NAMESPACE", "77"},
                     {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://192.0.2.2,10.0.0.1:49013;tcp6://[fd00::2]:40365"}};
  const std::string local = good(mpi).rendezvous;
  EXPECT_THAT(local, StartsWith(fmt::format("unix-abstract://gradsync-ompi-{}-", ::geteuid())));
  mpi["PMIX_NAMESPACE"] = "78";
  EXPECT_NE(good(mpi).rendezvous, local);
  mpi["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_THAT(good(mpi).rendezvous, StartsWith("host0://192.0.2.2:2"));
  mpi["MASTER_ADDR"] = "node3";
  EXPECT_THAT(good(mpi).rendezvous, StartsWith("host0://node3:2"));
  mpi.erase("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(error(mpi), "OMPI_COMM_WORLD_SIZE is not set");
}

TEST(Environment, Mpich) {
  Environment mpi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMI_FD", "6"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_EQ(good(mpi).rendezvous, "pmi://fd:6");
  mpi.erase("PMI_FD");
  mpi["PMI_PORT"] = "host:4000";
  mpi["PMI_ID"] = "9";
  EXPECT_EQ(good(mpi).rendezvous, "pmi://host:4000/9");
}

TEST(Environment, Slurm) {
  Environment slurm = {{"SLURM_PROCID", "2"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_JOB_ID", "123"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NODELIST", "node[07-09,12]"},
                       {"PMI_RANK", "2"},
                       {"PMI_FD", "3"},
                       {"PMI_SIZE", "4"}};
  const Options options = good(slurm);
  EXPECT_EQ(options.rank, 2);
  EXPECT_EQ(options.size, 4);
  EXPECT_THAT(options.rendezvous, AllOf(StartsWith("host0://node07:2"), HasSubstr("/slurm-123-0")));
  slurm["SLURM_STEP_NODELIST"] = "[";
  EXPECT_THAT(error(slurm), HasSubstr("SLURM_STEP_NODELIST is \"[\""));
}

TEST(Environment, SlurmHostLists) {
  EXPECT_EQ(first_slurm_host("a"), "a");
  EXPECT_EQ(first_slurm_host("a,b"), "a");
  EXPECT_EQ(first_slurm_host("n[1-3]"), "n1");
  EXPECT_EQ(first_slurm_host("n[007,9],m"), "n007");
  EXPECT_EQ(first_slurm_host("r[1-2]n[03-04]"), "r1n03");
  EXPECT_EQ(first_slurm_host("n[1-3]-ib,x"), "n1-ib");
  EXPECT_EQ(first_slurm_host("n[1-3"), "");
}

}  // namespace
}  // namespace gradsync
