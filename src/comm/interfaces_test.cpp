#include "comm/interfaces.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradsync {
namespace {

using testing::AllOf;
using testing::HasSubstr;

InterfaceAddress entry(const std::string& name, const char* address, bool up = true, bool bridge = false) {
  InterfaceAddress out;
  out.name = name;
  out.address = *parse_address(address);
  out.up = up;
  out.loopback = out.address.loopback();
  out.bridge = bridge;
  return out;
}

const std::vector<InterfaceAddress> kHost = {entry("lo", "127.0.0.1"),
                                             entry("lo", "::1"),
                                             entry("docker0", "172.17.0.1", true, true),
                                             entry("eth10", "192.0.2.10"),
                                             entry("eth1", "198.51.100.1"),
                                             entry("eth1", "2001:db8::10"),
                                             entry("ib0", "198.18.0.1", false)};

std::string chosen(const std::string& selection, std::optional<Address> source = std::nullopt, bool one_host = false) {
  const auto address = choose_address(kHost, {selection, source, one_host});
  return address ? host_text(*address) : "error: " + address.status().message;
}

TEST(Interfaces, TheSourceThatReachesTheRendezvousIsTakenAsItIs) {
  EXPECT_EQ(chosen("", parse_address("203.0.113.9")), "203.0.113.9");
}

TEST(Interfaces, WithoutARouteARealInterfaceComesBeforeABridgeAndLoopback) {
  EXPECT_EQ(chosen(""), "192.0.2.10");
  const std::vector<InterfaceAddress> bridge_only = {entry("lo", "127.0.0.1"),
                                                     entry("docker0", "172.17.0.1", true, true)};
  EXPECT_EQ(host_text(*choose_address(bridge_only, {})), "172.17.0.1");
  const std::vector<InterfaceAddress> alone = {entry("lo", "127.0.0.1")};
  EXPECT_EQ(host_text(*choose_address(alone, {})), "127.0.0.1");
}

TEST(Interfaces, WhatHasNoCarrierIsTakenOnlyIfItIsNamed) {
  std::vector<InterfaceAddress> host = {entry("eth0", "192.0.2.10"), entry("eth1", "198.51.100.1")};
  host[0].carrier = false;
  EXPECT_EQ(host_text(*choose_address(host, {})), "198.51.100.1");
  EXPECT_EQ(host_text(*choose_address(host, {"eth0", std::nullopt, false})), "192.0.2.10");
}

TEST(Interfaces, OneHostMeansLoopback) {
  EXPECT_EQ(chosen("", std::nullopt, true), "127.0.0.1");
  EXPECT_EQ(chosen("", parse_address("127.0.0.1"), true), "127.0.0.1");
}

TEST(Interfaces, NamesAreExactUnlessTheyHoldWildcards) {
  EXPECT_EQ(chosen("eth1"), "198.51.100.1");
  EXPECT_EQ(chosen("eth1*"), "192.0.2.10");
  EXPECT_EQ(chosen("eth??"), "192.0.2.10");
  EXPECT_THAT(chosen("eth"), HasSubstr("error: no interface for \"eth\"; tried: lo 127.0.0.1 (does not match)"));
}

TEST(Interfaces, AddressesAndNetworksSelect) {
  EXPECT_EQ(chosen("198.51.100.0/24"), "198.51.100.1");
  EXPECT_EQ(chosen("2001:db8::/32"), "2001:db8::10");
  EXPECT_EQ(chosen("172.17.0.1"), "172.17.0.1");
  EXPECT_EQ(chosen("10.0.0.0/8, 172.16.0.0/12"), "172.17.0.1");
  EXPECT_EQ(chosen("0.0.0.0/0,!192.0.2.0/24,!lo"), "198.51.100.1");
}

TEST(Interfaces, ExclusionsAloneMeanAllOthers) { EXPECT_EQ(chosen("!eth10,!docker0"), "198.51.100.1"); }

TEST(Interfaces, TheFamilyOfTheRendezvousIsPreferred) {
  EXPECT_EQ(chosen("eth1", parse_address("2001:db8::10")), "2001:db8::10");
  EXPECT_EQ(chosen("eth1", parse_address("2001:db8::99")), "2001:db8::10");
  EXPECT_EQ(chosen("eth1", parse_address("203.0.113.9")), "198.51.100.1");
}

TEST(Interfaces, AnErrorListsWhatWasTriedAndWhyNot) {
  EXPECT_THAT(chosen("ib0"),
              AllOf(HasSubstr("ib0 198.18.0.1 (down)"), HasSubstr("eth1 198.51.100.1 (does not match)")));
  EXPECT_THAT(chosen("eth10,!eth10"), HasSubstr("eth10 192.0.2.10 (excluded by !eth10)"));
}

TEST(Interfaces, MalformedSelectionsAreNamed) {
  for (const char* bad : {"10.0.0.0/33", "eth0/8", "10.0.0.0/", "10.0.0.0/8x", "eth0,,eth1", "!", "2001:db8::/129"})
    EXPECT_THAT(chosen(bad), HasSubstr("error: interface selection: \"")) << bad;
}

TEST(Addresses, LiteralsAndTheirTexts) {
  EXPECT_EQ(text(parse_address("192.0.2.1")->with_port(80)), "192.0.2.1:80");
  EXPECT_EQ(text(parse_address("2001:db8::1")->with_port(80)), "[2001:db8::1]:80");
  EXPECT_EQ(host_text(*parse_address("fe80::1%lo")), "fe80::1%lo");
  for (const char* bad : {"", "192.0.2", "192.0.2.256", "::g", "fe80::1%none", "host", "192.0.2.1%lo"})
    EXPECT_FALSE(parse_address(bad)) << bad;
  EXPECT_TRUE(parse_address("127.0.1.1")->loopback());
  EXPECT_TRUE(parse_address("::ffff:127.0.0.1")->loopback());
  EXPECT_FALSE(parse_address("128.0.0.1")->loopback());
}

}  // namespace
}  // namespace gradsync
