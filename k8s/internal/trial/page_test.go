package trial

import (
	"encoding/json"
	"strings"
	"testing"
)

func round(placed, started int, ppm int64) Round {
	return Round{Placed: placed, Allocated: placed, PlacedAgain: 10, Started: started, StartedAgain: 10, MostPpm: ppm}
}

func TestARaceThatSellsTwiceIsCountedAndSoIsOneThatSellsTooLittle(t *testing.T) {
	record := Record{
		Rounds: []Round{round(10, 10, 900_000), round(11, 11, 900_000), round(9, 9, 900_000), round(10, 10, 900_001)},
		Checks: []Check{{What: "a", Found: "b | c", Holds: false}},
	}
	if failed, beyond := record.Failed(), record.roundsBeyond(); failed != 3 || beyond != 2 {
		t.Errorf("%d fail, %d go beyond", failed, beyond)
	}
	text, err := json.Marshal(record.Page(&Scale{Nodes: 7, Claims: 8, FillSeconds: 2, FillSecondsWithout: 1}))
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"**no**", "b / c", `"count":2`, `"count":1`, "9 to 11", "7 nodes, 8 claims", "| with a claim | 2 | 4 |"} {
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
