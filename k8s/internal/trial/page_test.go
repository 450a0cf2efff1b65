package trial

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func round(placed, started int, ppm int64) Round {
	return Round{Placed: placed, Allocated: placed, PlacedAgain: 10, Started: started, StartedAgain: 10, MostPpm: ppm}
}

func TestARaceThatSellsTwiceIsCountedAndSoIsOneThatSellsTooLittle(t *testing.T) {
	record := Record{
		Rounds: []Round{round(10, 10, 900_000), round(11, 11, 900_000), round(9, 9, 900_000), round(10, 10, 900_001)},
		Checks: []Check{{What: "a", Found: "b | c", Holds: false}},
	}
	if failed, beyond := record.Failed(), beyond(record.Rounds); failed != 3 || beyond != 2 {
		t.Errorf("%d fail, %d go beyond", failed, beyond)
	}
	text, err := json.Marshal(record.Page(&Scale{
		Load: Load{Nodes: 7, Claims: 9, CPUs: 3, Longest: time.Minute},
		With: Filling{Placed: 8, Seconds: 2, LastSeconds: 0.5}, Without: Filling{Placed: 9, Seconds: 1, LastSeconds: 0.1},
	}, &Paper{
		Hosts:   []PaperHost{{Name: "host0", CPUs: 3, RealTime: []string{"rt-7 (1.05)"}, Others: 2, Given: 1.05, MostPpm: 525_000}},
		Refused: []string{"RT 12", "other"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"**no**", "b / c", `"count":2`, `"count":1`, "9 to 11", "7 nodes, 8 claims", "9 claims were asked for",
		"| with a claim | 8 | 2 | 4.0 | 2.0 |", "1 real-time and 2 other VMs; refused: RT 12, other.",
		"| host0 | 3 | 1.05 | 525000 | rt-7 (1.05) | 2 |"} {
		if !strings.Contains(string(text), words) {
			t.Errorf("the page lacks %q: %s", words, text)
		}
	}
}

func TestRacesByTurnsAreToldFromThoseWithDeaths(t *testing.T) {
	first, second, killed := round(10, 10, 900_000), round(10, 10, 900_000), round(11, 10, 900_000)
	first.Leads, second.Leads, killed.Killed = 1, 2, killsEtcd
	record := Record{Rounds: []Round{first, second, second, killed}}
	quiet, deadly := record.byDeath()
	if len(quiet) != 3 || len(deadly) != 1 || beyond(quiet) != 0 || beyond(deadly) != 1 {
		t.Errorf("%d without a death, %d with one", len(quiet), len(deadly))
	}
	text, err := json.Marshal(record.Page(nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"--rounds 1 --turns 3", "kube-scheduler 1 has its turn | 1 |", "kube-scheduler 2 has its turn | 2 |", "| etcd | 1 |"} {
		if !strings.Contains(string(text), words) {
			t.Errorf("the page lacks %q: %s", words, text)
		}
	}
}

func TestPercentilesAreTheNearestRank(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	for of, expected := range map[float64]float64{0: 1, 50: 2, 75: 3, 99: 4} {
		if found := percentile(values, of); found != expected {
			t.Errorf("p%.0f is %f", of, found)
		}
	}
	if percentile(nil, 50) != 0 {
		t.Error("of nothing there is something")
	}
}
