"""Every command of the real mqadmin, 4.9.7: how it is called here, and what its output must match."""

from __future__ import annotations

import attrs


@attrs.frozen
class Command:
    """One command line. Names in braces stand for what the test knows: ``{topic}``, ``{broker}`` (an address), ..."""

    line: str
    wanted: tuple[str, ...] = ()
    """Regular expressions, each found in the output (multi-line)."""
    limit_s: int = 60
    """Commands that go on for ever are ended then."""

    @property
    def name(self) -> str:
        return self.line.split()[0]


def _command(line: str, *wanted: str, limit_s: int = 60) -> Command:
    return Command(line, wanted, limit_s)


COMMANDS = (
    # topics
    _command("updateTopic -b {broker} -t {topic} -r 1 -w 1", "create topic to {broker} success", "readQueueNums=1"),
    _command(
        "updateTopic -c {cluster} -t {topic}_2 -r 3 -w 2 -o true", "create topic to {broker} success", "order=true"
    ),
    _command("sendMessage -t {topic} -p first -k k1 -c T", r"SEND_OK"),
    _command("sendMessage -t {topic} -p second -k k2 -c T -b {name} -i 0", r"{name} +0 +SEND_OK"),
    _command("sendMessage -t {topic} -p third -k k3 -c U -m true", r"SEND_OK"),
    _command("topicList", "^{topic}$", "^TBW102$"),
    _command("topicList -c", "{cluster} +{topic} "),
    _command("topicRoute -t {topic}", '"brokerName" ?: ?"{name}"', '"readQueueNums" ?: ?1', '"perm" ?: ?6'),
    _command("topicRoute -t {topic} -l", r"{cluster} +{name} .*{broker}.* 1 +1 +6"),
    _command("topicStatus -t {topic}", r"{name} +0 +0 +3 +20\d\d-"),
    _command("topicClusterList -t {topic}", "^{cluster}$"),
    _command("updateTopicPerm -b {broker} -t {topic}_2 -p 4", "update topic perm from 6 to 4 in {broker} success"),
    _command("updateTopicPerm -c {cluster} -t {topic}_2 -p 6", "update topic perm from 4 to 6 in {broker} success"),
    _command("updateOrderConf -m put -t {topic}_2 -v {name}:2", r"update orderConf success. topic=\[{topic}_2\]"),
    _command("updateOrderConf -m get -t {topic}_2", r"get orderConf success. .*orderConf=\[{name}:2\]"),
    _command("updateOrderConf -m delete -t {topic}_2", "delete orderConf success"),
    _command("allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2", r'"10.0.0.1":\[\{{.*"topic":"{topic}"'),
    # messages
    _command(
        "queryMsgById -i {offset_id}",
        r"Message ID: +{offset_id}|OffsetID: +{offset_id}",
        "Tags: +.T.",
        r"Queue Offset: +0",
    ),
    _command(
        "queryMsgByUniqueKey -t {topic} -i {unique_key}",
        r"Keys: +.k1.",
        "UNIQ_KEY={unique_key}",
        r"consumerGroup={group}, trackType=CONSUMED",
    ),
    _command("queryMsgByUniqueKey -t {topic} -i {unique_key} -a", "UNIQ_KEY={unique_key}"),
    _command("queryMsgByKey -t {topic} -k k2", r"^[0-9A-F]{{32,}} +0 +1$"),
    _command("queryMsgByOffset -t {topic} -b {name} -i 0 -o 1", r"Keys: +.k2."),
    _command("queryMsgTraceById -i {traced_key}", r"^Pub +"),
    _command("queryMsgTraceById -i {traced_here}", r"^Pub +traced_here +127.0.0.1 .* success"),
    _command("printMsg -t {topic} -d true", "BODY: first", "BODY: third", "maxOffset=3"),
    _command("printMsgByQueue -t {topic} -a {name} -i 0 -p true -d true -f true", "BODY: second", "Tag: T +Count: 2"),
    _command("consumeMessage -t {topic} -b {name} -i 0 -o 0 -c 3", "BODY: first", "BODY: third"),
    _command("queryCq -t {topic} -q 0 -i 0 -c 3 -b {broker}", "max: 3, min: 0", "physicOffset="),
    _command("queryCq -t {topic} -q 0 -i 0 -g {group}", "max: 3, min: 0", "physicOffset="),
    _command("checkMsgSendRT -t {topic} -a 5 -s 64", r"{name} +0 +true", "Avg RT"),
    _command("sendMsgStatus -b {name} -s 64 -c 2", r"rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK"),
    _command("clusterRT -a 2 -s 64 -i 1", r"{cluster} +{name} +\d+\.\d+ +[12] +0", limit_s=15),
    # groups and clients
    _command(
        "updateSubGroup -b {broker} -g {group}_new -r 5",
        "subscription group to {broker} success",
        "retryMaxTimes=5",
    ),
    _command(
        "updateSubGroup -c {cluster} -g {group}_new -s false",
        "subscription group to {broker} success",
        "consumeEnable=false",
    ),
    _command("getConsumerConfig -g {group}_new", r"groupName += +{group}_new", r"retryMaxTimes += +16"),
    _command(
        "consumerConnection -g {group}", r"{client_id} +\S+ +\w+ +V\d", r"{topic} +\*", "ConsumeType: CONSUME_PASSIVELY"
    ),
    _command("consumerConnection -g {group} -b {broker}", r"{client_id}"),
    _command("consumerProgress", r"{group} +1 +V"),
    _command("consumerProgress -g {group}", r"{topic} +{name} +0 +\d+ +\d+ +\d+ ", "Consume TPS"),
    _command("consumerProgress -g {group} -s true", r"{topic} +{name} +0 "),
    _command("consumerStatus -g {group}", r"{client_id}"),
    _command("consumerStatus -g {group} -i {client_id}", "#Consumer Properties#", "#Consumer MQ Detail#", "{topic}"),
    _command("consumerStatus -g {group} -i {client_id} -s", "#Consumer Properties#"),
    _command("producerConnection -g {producer_group} -t {topic}", r"0001 +{producer_id} "),
    _command("producer -b {broker}", r"producer group \({producer_group}\) instance"),
    _command("brokerConsumeStats -b {broker}", r"^{topic} +{group} +{name} +0 +\d+ +\d+ +\d+", "Diff Total"),
    _command(
        "cloneGroupOffset -s {group} -d {group}_copy -t {topic} -o true",
        "clone group offset success",
    ),
    _command(
        "resetOffsetByTime -g {group} -t {topic} -s 0 -f true",
        r"rollback consumer offset by specified group\[{group}\]",
        r"{name} +0 +\d",
    ),
    _command(
        "resetOffsetByTime -g {group}_copy -t {topic} -s now -f true",
        r"rollback consumer offset by specified",
        r"{name} +0 +\d",
    ),
    _command("skipAccumulatedMessage -g {group}_copy -t {topic} -f true", r"{name} +0 "),
    _command("queryMsgByUniqueKey -t {topic} -i {unique_key} -g {group} -d {client_id}", "consumeResult=CR_SUCCESS"),
    _command(
        "queryMsgById -i {offset_id} -g {group} -d {client_id}",
        "consumeResult=CR_SUCCESS",
    ),
    _command(
        "deleteSubGroup -b {broker} -g {group}_new -r true",
        r"\[{group}_new\] from broker \[{broker}\] success",
    ),
    # brokers
    _command("clusterList", "{cluster} +{name} +0 +{broker} +V4_9"),
    _command("clusterList -m", r"{cluster} +{name} +\d+ +\d+ +\d+ +\d+"),
    _command(
        "brokerStatus -b {broker}", "^brokerVersionDesc +: V4_9", r"^commitLogMaxOffset +: [1-9]\d*", "^putTps +: "
    ),
    _command("brokerStatus -c {cluster}", "^{broker} +brokerVersionDesc +: V4_9"),
    _command("getBrokerConfig -b {broker}", "^brokerName += +{name}", "^deleteWhen += +04"),
    _command("getBrokerConfig -c {cluster}", "Master: {broker}"),
    _command("updateBrokerConfig -b {broker} -k fileReservedTime -v 71", "update broker config success, {broker}"),
    _command("updateBrokerConfig -c {cluster} -k fileReservedTime -v 72", "update broker config success, {broker}"),
    _command("statsAll -t {topic}", r"{topic} +{group} +\d+ "),
    _command("cleanExpiredCQ -b {broker}", "^success$"),
    _command("deleteExpiredCommitLog -b {broker}", "^success$"),
    _command("cleanUnusedTopic -c {cluster}", "^success$"),
    _command("exportMetadata -c {cluster} -f {folder}", "export {folder}/metadata.json success"),
    _command("exportMetadata -b {broker} -f {folder} -t", "export {folder}/topic.json success"),
    _command("exportMetadata -b {broker} -f {folder} -g", "export {folder}/subscriptionGroup.json success"),
    _command("exportConfigs -c {cluster} -f {folder}", "export {folder}/configs.json success"),
    _command("exportMetrics -c {cluster} -f {folder}", "export {folder}/metrics.json success"),
    # name server
    _command("getNamesrvConfig", "^listenPort += +{namesrv_port}$"),
    _command("updateNamesrvConfig -k orderMessageEnable -v true", "update name server config success"),
    _command("updateKvConfig -s {topic} -k color -v blue", "create or update kv config to namespace success"),
    _command("deleteKvConfig -s {topic} -k color", "delete kv config from namespace success"),
    _command("wipeWritePerm -b {name}", r"wipe write perm of broker\[{name}\] in name server\[\S+\] OK, [1-9]"),
    _command("addWritePerm -b {name}", r"add write perm of broker\[{name}\] in name server\[\S+\] OK, [1-9]"),
    _command(
        "deleteTopic -c {cluster} -t {topic}_2",
        r"delete topic \[{topic}_2\] from cluster \[{cluster}\] success",
        "from NameServer success",
    ),
    _command("startMonitoring", limit_s=3),
)

ACCESS_COMMANDS = (
    _command(
        "clusterAclConfigVersion -c {cluster}",
        "get cluster's plain access config version success",
        "{cluster} +{name} +{broker}",
    ),
    _command("clusterAclConfigVersion -b {broker}", "get broker's plain access config version success"),
    _command(
        "updateAclConfig -b {broker} -a newcomer -s 12345678 -i DENY -u SUB -t A=PUB,B=SUB -g g=SUB -m false",
        "plain access config to {broker} success",
    ),
    _command(
        "updateAclConfig -c {cluster} -a newcomer -s 12345678 -t A=PUB",
        "plain access config to {broker} success",
    ),
    _command(
        "updateGlobalWhiteAddr -b {broker} -g 127.0.0.*,192.168.0.*",
        "white remote addresses to {broker} success",
    ),
    _command("deleteAclConfig -b {broker} -a newcomer", "config account from {broker} success"),
    _command("getAclConfig -b {broker}", "accounts:", "{access_key}"),
)
"""Those that need ``acl.enable``."""
